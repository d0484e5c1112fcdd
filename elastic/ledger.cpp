#include "elastic/ledger.h"

#include <bit>
#include <charconv>
#include <nlohmann/json.hpp>

#include "tensor/check.h"
#include "tensor/philox.h"

namespace elinvar {

namespace {

double number_in(const nlohmann::json& json, const char* key) {
  const std::string hex = json.at(key).get<std::string>();
  uint64_t bits = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), bits, 16);
  if (error != std::errc{} || end != hex.data() + 16) fail("malformed {}", key);
  return std::bit_cast<double>(bits);
}

// Of two lines of one step that are not equal.
std::string differing_fields(const LedgerLine& then, const LedgerLine& now) {
  std::string differing;
  const auto compare = [&](const char* what, bool equal) {
    if (!equal) differing += differing.empty() ? what : std::string(", ") + what;
  };
  const auto bits = [](double x) { return std::bit_cast<uint64_t>(x); };
  const auto a = then.scaling.value_or(LedgerLine::Scaling{}), b = now.scaling.value_or(LedgerLine::Scaling{});
  compare("batch_size", a.batch_size == b.batch_size);
  compare("lr", bits(a.lr) == bits(b.lr));
  compare("batch", then.batch == now.batch);
  compare("loss", bits(then.loss) == bits(now.loss));
  compare("gradient", then.gradient == now.gradient);
  compare("state", then.state == now.state);
  return differing;
}

}  // namespace

LedgerOptions::Leaves leaves_from(const std::string& word) {
  using Leaves = LedgerOptions::Leaves;
  for (const auto& [name, leaves] :
       {std::pair("none", Leaves::none), std::pair("sample", Leaves::sample), std::pair("all", Leaves::all)})
    if (word == name) return leaves;
  check(false, "[ledger] expected leaves to be \"none\", \"sample\" or \"all\", got \"{}\"", word);
  return {};
}

bool names_leaf(const LedgerOptions& options, int64_t step, int vrank, int vranks) {
  if (options.leaves != LedgerOptions::Leaves::sample) return options.leaves == LedgerOptions::Leaves::all;
  const Random4 drawn = philox(0, static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32), 0, 0);
  return static_cast<int>(drawn.v[0] % static_cast<uint32_t>(vranks)) == vrank;
}

std::string LedgerLine::text() const {
  std::string text = fmt::format(R"({{"step":{})", step);
  if (scaling)
    text +=
        fmt::format(R"(,"batch_size":{},"lr":"{:016x}")", scaling->batch_size, std::bit_cast<uint64_t>(scaling->lr));
  text += fmt::format(R"(,"batch":"{}","loss":"{:016x}","gradient":"{}")", batch.hex(), std::bit_cast<uint64_t>(loss),
                      gradient.hex());
  if (state) text += fmt::format(R"(,"state":"{}")", state->hex());
  return text + "}";
}

LedgerLine LedgerLine::parse(const std::string& text) {
  LedgerLine line;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    line.step = json.at("step").get<int64_t>();
    line.batch = Digest::parse(json.at("batch").get<std::string>());
    if (json.contains("batch_size")) line.scaling = {json["batch_size"].get<int64_t>(), number_in(json, "lr")};
    line.loss = number_in(json, "loss");
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
  const auto at = static_cast<size_t>(now.step - 1);
  if (at < expected_.size() && expected_[at] != text)
    fail("[ledger] step {} has other facts than in the run that is replayed ({}).\n  there: {}\n  here:  {}", now.step,
         differing_fields(LedgerLine::parse(expected_[at]), now), expected_[at], text);
  if (now.step == length() + 1) {
    file_.append(text);
    lines_.push_back(text);
    return true;
  }
  if (line(now.step) == text) return false;
  fail(
      "[ledger] step {} was recorded before with other facts ({}): the data, the software or the hardware changed.\n"
      "  before: {}\n  now:    {}",
      now.step, differing_fields(LedgerLine::parse(line(now.step)), now), line(now.step), text);
}

}  // namespace elinvar
