#include "elastic/ledger.h"

#include <bit>
#include <charconv>
#include <nlohmann/json.hpp>

#include "tensor/check.h"

namespace elinvar {

std::string LedgerLine::text() const {
  std::string text = fmt::format(R"({{"step":{},"batch":"{}","loss":"{:016x}","gradient":"{}")", step, batch.hex(),
                                 std::bit_cast<uint64_t>(loss), gradient.hex());
  if (state) text += fmt::format(R"(,"state":"{}")", state->hex());
  return text + "}";
}

LedgerLine LedgerLine::parse(const std::string& text) {
  LedgerLine line;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    line.step = json.at("step").get<int64_t>();
    line.batch = Digest::parse(json.at("batch").get<std::string>());
    const std::string loss = json.at("loss").get<std::string>();
    uint64_t bits = 0;
    const auto [end, error] = std::from_chars(loss.data(), loss.data() + loss.size(), bits, 16);
    if (error != std::errc{} || end != loss.data() + 16) fail("malformed loss");
    line.loss = std::bit_cast<double>(bits);
    line.gradient = Digest::parse(json.at("gradient").get<std::string>());
    if (json.contains("state")) line.state = Digest::parse(json.at("state").get<std::string>());
  } catch (const std::exception& error) {
    fail("[ledger] malformed line '{}': {}", text, error.what());
  }
  return line;
}

Ledger::Ledger(const std::filesystem::path& directory) : file_(directory / "ledger.jsonl"), lines_(file_.lines()) {
  for (int64_t step = 1; step <= length(); ++step)
    if (LedgerLine::parse(line(step)).step != step)
      fail("[ledger] {}: line {} is not that of step {}; the file was changed by hand or is corrupt",
           file_.path().string(), step, step);
}

bool Ledger::record(const LedgerLine& now) {
  check(now.step >= 1 && now.step <= length() + 1, "[ledger] step {} recorded after step {}", now.step, length());
  const std::string text = now.text();
  if (now.step == length() + 1) {
    file_.append(text);
    lines_.push_back(text);
    return true;
  }
  if (line(now.step) == text) return false;

  const LedgerLine then = LedgerLine::parse(line(now.step));
  std::string differing;
  const auto compare = [&](const char* what, bool equal) {
    if (!equal) differing += differing.empty() ? what : std::string(", ") + what;
  };
  compare("batch", then.batch == now.batch);
  compare("loss", std::bit_cast<uint64_t>(then.loss) == std::bit_cast<uint64_t>(now.loss));
  compare("gradient", then.gradient == now.gradient);
  compare("state", then.state == now.state);
  fail(
      "[ledger] step {} was recorded before with other facts ({}): the data, the software or the hardware changed.\n"
      "  before: {}\n  now:    {}",
      now.step, differing, line(now.step), text);
}

}  // namespace elinvar
