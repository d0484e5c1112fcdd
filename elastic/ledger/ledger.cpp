#include "elastic/ledger/ledger.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <nlohmann/json.hpp>

#include "elastic/ledger/sealed_line.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tensor/base/reason.h"
#include "tensor/philox.h"

namespace elinvar {

namespace {

using Json = nlohmann::json;

constexpr const char* kLeaves[] = {"none", "sample", "all"};

std::string hex_of(double x) { return fmt::format("{:016x}", std::bit_cast<uint64_t>(x)); }

double number_in(const Json& json, const char* key) {
  const std::string hex = json.at(key).get<std::string>();
  uint64_t bits = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), bits, 16);
  if (error != std::errc{} || end != hex.data() + 16) fail("malformed {}", key);
  return std::bit_cast<double>(bits);
}

// Returns the keys in which two unequal headers differ.
std::string differing_keys(const std::string& then, const std::string& now) {
  const Json a = unsealed(then), b = unsealed(now);
  std::string differing;
  for (const auto& [key, value] : b.items())
    if (key != "sum" && (!a.contains(key) || a[key] != value)) differing += (differing.empty() ? "" : ", ") + key;
  return differing;
}

// Returns how two unequal lines of one step differ, including facts that only one of them has.
std::string how_they_differ(const LedgerLine& then, const LedgerLine& now) {
  std::vector<std::string> fields = differing_fields(then, now);
  const auto same_rank = [](const auto& a, const auto& b) { return a.first == b.first; };
  if (!std::equal(then.leaves.begin(), then.leaves.end(), now.leaves.begin(), now.leaves.end(), same_rank))
    fields.emplace_back("leaves");
  if (then.state.has_value() != now.state.has_value()) fields.emplace_back("state");
  return fmt::format("{}", fmt::join(fields, ", "));
}

}  // namespace

void refuse_older_ledger(const std::string& first, const std::filesystem::path& path) {
  const Json json = parse_json(first);
  if (json.is_object() && json.contains("step") && !json.contains("sum"))
    fail(
        "[ledger] {} is of version 1, and this program reads version {}: finish the run with the program that began it",
        path.string(), kLedgerVersion);
}

// Parses the header. Throws Failure that names the file.
static LedgerHeader check_header(const std::string& line, const std::filesystem::path& path) {
  try {
    return LedgerHeader::parse(line);
  } catch (const Failure& failure) {
    fail("{}: {}", path.string(), failure.what());
  }
}

LedgerOptions::Leaves leaves_from(const std::string& word) {
  const auto found = std::find(std::begin(kLeaves), std::end(kLeaves), word);
  check(found != std::end(kLeaves), "[ledger] expected leaves to be \"none\", \"sample\" or \"all\", got \"{}\"", word);
  return static_cast<LedgerOptions::Leaves>(found - std::begin(kLeaves));
}

const char* name_of(LedgerOptions::Leaves leaves) { return kLeaves[static_cast<size_t>(leaves)]; }

bool names_rank_gradient(const LedgerOptions& options, int64_t step, int vrank, int vranks) {
  if (options.leaves != LedgerOptions::Leaves::sample) return options.leaves == LedgerOptions::Leaves::all;
  if (vranks == 1) return false;
  const Random4 drawn = philox(0, static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32), 0, 0);
  return static_cast<int>(drawn.v[0] % static_cast<uint32_t>(vranks)) == vrank;
}

std::string LedgerHeader::text() const {
  return sealed(fmt::format(
      R"({{"ledger":{},"numerics_version":{},"numerics":"{}",{}"scaling":"{}","virtual_ranks":{},{}"config":"{}",)"
      R"("data":"{}","leaves":"{}","tensors_every":{}}})",
      kLedgerVersion, numerics_version, numerics,
      kind.empty() ? "" : fmt::format(R"("kind":{},)", Json(kind).dump(-1, ' ', true)), scaling, virtual_ranks,
      virtual_shards == 1 ? "" : fmt::format(R"("virtual_shards":{},)", virtual_shards), config.hex(), data.hex(),
      name_of(options.leaves), options.tensors_every));
}

LedgerHeader LedgerHeader::parse(const std::string& text) {
  LedgerHeader header;
  try {
    const Json json = unsealed(text);
    const int version = json.at("ledger").get<int>();
    if (version != kLedgerVersion) fail("its version is {}, and this program reads {}", version, kLedgerVersion);
    header.numerics_version = json.at("numerics_version").get<int>();
    header.numerics = json.at("numerics").get<std::string>();
    header.kind = json.value("kind", "");
    header.scaling = json.at("scaling").get<std::string>();
    header.virtual_ranks = json.at("virtual_ranks").get<int>();
    header.virtual_shards = json.value("virtual_shards", int64_t{1});
    if (header.virtual_ranks < 1 || header.virtual_shards < 1) fail("its numbers of ranks and shards must be positive");
    header.config = Digest::parse(json.at("config").get<std::string>());
    header.data = Digest::parse(json.at("data").get<std::string>());
    header.options.leaves = leaves_from(json.at("leaves").get<std::string>());
    header.options.tensors_every = json.at("tensors_every").get<int64_t>();
  } catch (const std::exception& error) {
    fail("[ledger] malformed header '{}': {}", text.substr(0, 200), reason_of(error));
  }
  return header;
}

std::string LedgerLine::text() const {
  std::string text = fmt::format(R"({{"step":{})", step);
  if (batch_size) text += fmt::format(R"(,"batch_size":{})", *batch_size);
  text += fmt::format(R"(,"batch":"{}","loss":"{}")", batch.hex(), hex_of(loss));
  std::string named;
  for (const auto& [vrank, leaf] : leaves)
    named += fmt::format(R"({}"{}":"{}")", named.empty() ? "" : ",", vrank, leaf.hex());
  if (!named.empty()) text += fmt::format(R"(,"leaves":{{{}}})", named);
  text += fmt::format(R"(,"gradient":"{}","lr":"{}")", gradient.hex(), hex_of(lr));
  if (state) text += fmt::format(R"(,"state":"{}")", state->hex());
  return sealed(text + "}");
}

LedgerLine LedgerLine::parse(const std::string& text) {
  LedgerLine line;
  try {
    const Json json = unsealed(text);
    line.step = json.at("step").get<int64_t>();
    if (json.contains("batch_size")) line.batch_size = json["batch_size"].get<int64_t>();
    line.batch = Digest::parse(json.at("batch").get<std::string>());
    line.loss = number_in(json, "loss");
    if (json.contains("leaves"))
      for (const auto& [vrank, leaf] : json["leaves"].items())
        line.leaves.emplace(std::stoi(vrank), Digest::parse(leaf.get<std::string>()));
    line.gradient = Digest::parse(json.at("gradient").get<std::string>());
    line.lr = number_in(json, "lr");
    if (json.contains("state")) line.state = Digest::parse(json["state"].get<std::string>());
  } catch (const std::exception& error) {
    fail("malformed line '{}': {}", text.substr(0, 200), reason_of(error));
  }
  return line;
}

std::vector<std::string> differing_fields(const LedgerLine& a, const LedgerLine& b) {
  std::vector<std::string> fields;
  const auto compare = [&](const std::string& field, bool equal) {
    if (!equal) fields.push_back(field);
  };
  const auto bits = [](double x) { return std::bit_cast<uint64_t>(x); };
  compare("batch_size", a.batch_size == b.batch_size);
  compare("batch", a.batch == b.batch);
  compare("loss", bits(a.loss) == bits(b.loss));
  for (const auto& [vrank, leaf] : a.leaves)
    if (const auto other = b.leaves.find(vrank); other != b.leaves.end())
      compare(fmt::format("leaf {}", vrank), leaf == other->second);
  compare("gradient", a.gradient == b.gradient);
  compare("lr", bits(a.lr) == bits(b.lr));
  compare("state", !a.state || !b.state || *a.state == *b.state);
  return fields;
}

void note_batch(std::vector<GenerationScaling::Change>& changes, int64_t first, const LedgerLine& line) {
  const int64_t before = changes.empty() ? first : changes.back().batch;
  if (line.batch_size && *line.batch_size != before) changes.push_back({line.step - 1, *line.batch_size});
}

std::vector<GenerationScaling::Change> batch_changes(const Ledger& ledger, int64_t first) {
  std::vector<GenerationScaling::Change> changes;
  for (int64_t step = 1; step <= ledger.known(); ++step) {
    const bool own = step <= ledger.length();
    note_batch(changes, first,
               LedgerLine::parse(own ? ledger.line(step) : ledger.expected()[static_cast<size_t>(step - 1)]));
  }
  return changes;
}

Ledger::Ledger(const std::filesystem::path& directory) : file_(directory / "ledger.jsonl"), lines_(file_.lines()) {
  if (lines_.empty()) return;
  refuse_older_ledger(lines_[0], file_.path());
  header_ = lines_[0];
  check_header(header_, file_.path());
  lines_.erase(lines_.begin());
  for (int64_t step = 1; step <= length(); ++step) {
    try {
      if (LedgerLine::parse(line(step)).step != step) fail("it is not that of step {}", step);
    } catch (const Failure& fault) {
      fail(
          "[ledger] {}, line {}: {}. The file is corrupt, or was changed by hand: keep a copy and cut it off before "
          "this line; the run goes on from a checkpoint of step {} or before",
          file_.path().string(), step + 1, fault.what(), step - 1);
    }
  }
}

void Ledger::begin(const LedgerHeader& header) {
  const std::string text = header.text();
  if (header_ == text) return;
  if (length() > 0)
    check(false, "[ledger] {} is that of a run with another {}; --run-dir chooses another place", file_.path().string(),
          differing_keys(header_, text));
  file_.keep(0);  // left by a run that did not reach its first step
  file_.append(text);
  file_.write();
  header_ = text;
}

bool Ledger::record(const LedgerLine& now) {
  check(now.step >= 1 && now.step <= length() + 1, "[ledger] step {} recorded after step {}", now.step, length());
  check(!header_.empty(), "[ledger] step {} recorded before the header", now.step);
  const std::string text = now.text();
  const auto at = static_cast<size_t>(now.step - 1);
  if (at < expected_.size() && expected_[at] != text) {
    contradiction_ = text;
    fail("[ledger] step {} has other facts than in the run that is replayed ({}).\n  there: {}\n  here:  {}", now.step,
         how_they_differ(LedgerLine::parse(expected_[at]), now), expected_[at], text);
  }
  if (now.step == length() + 1) {
    file_.append(text);
    lines_.push_back(text);
    return true;
  }
  if (line(now.step) == text) return false;
  contradiction_ = text;
  fail(
      "[ledger] step {} was recorded before with other facts ({}): the data, the software or the hardware changed.\n"
      "  before: {}\n  now:    {}",
      now.step, how_they_differ(LedgerLine::parse(line(now.step)), now), line(now.step), text);
}

std::vector<std::string> ledger_steps(const std::filesystem::path& ledger) {
  std::vector<std::string> lines = whole_lines(read_file(ledger));
  if (lines.empty()) return lines;
  refuse_older_ledger(lines[0], ledger);
  check_header(lines[0], ledger);
  lines.erase(lines.begin());
  return lines;
}

std::optional<LedgerHeader> ledger_header(const std::filesystem::path& ledger) {
  if (!std::filesystem::exists(ledger)) return std::nullopt;
  const std::vector<std::string> lines = whole_lines(read_file(ledger));
  if (lines.size() < 2) return std::nullopt;
  refuse_older_ledger(lines[0], ledger);
  return check_header(lines[0], ledger);
}

}  // namespace elinvar
