#include "elastic/run_record.h"

#include "elastic/generation.h"
#include "elastic/sealed_line.h"
#include "tensor/check.h"
#include "tensor/file.h"

namespace elinvar {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

Json parsed(const std::string& text) { return Json::parse(text, nullptr, /*allow_exceptions=*/false); }

}  // namespace

std::string to_string(const Damage& damage) {
  return damage.line == 0 ? fmt::format("{}: {}", damage.file, damage.what)
                          : fmt::format("{}, line {}: {}", damage.file, damage.line, damage.what);
}

RunRecord::RunRecord(const fs::path& directory) : path_(directory), store_(directory / "checkpoints") {
  check(fs::exists(path_ / "ledger.jsonl"), "{} is no run directory: it has no ledger.jsonl", path_.string());
  read_ledger();
  read_digests();
  metrics_ = objects_of("metrics.jsonl",
                        [](const Json& line) { return line.contains("step") && line["step"].is_number_integer(); });
  events_ = objects_of("events.jsonl", [](const Json& line) {
    return line.contains("time") && line["time"].is_string() && line.contains("event") && line["event"].is_string();
  });
  if (fs::exists(path_ / "environment.json")) {
    const Json json = parsed(read_file(path_ / "environment.json"));
    if (json.is_object()) environment_ = json;
    else damage_.push_back({"environment.json", 0, "it is no JSON object"});
  }
  read_workers();
}

// Whole lines; what follows the last newline is damage.
std::vector<std::string> RunRecord::lines_of(const std::string& file) {
  std::vector<std::string> lines;
  if (!fs::exists(path_ / file)) return lines;
  const std::string text = read_file(path_ / file);
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  if (begin < text.size())
    damage_.push_back({file, static_cast<int64_t>(lines.size()) + 1,
                       "it is cut off, as a crash leaves it: the line does not count", true});
  return lines;
}

std::vector<Json> RunRecord::objects_of(const std::string& file, const std::function<bool(const Json&)>& good) {
  std::vector<Json> objects;
  int64_t number = 0;
  for (const std::string& line : lines_of(file)) {
    ++number;
    Json json = parsed(line);
    if (json.is_object() && good(json)) objects.push_back(std::move(json));
    else damage_.push_back({file, number, "it is not what the file consists of"});
  }
  return objects;
}

void RunRecord::read_ledger() {
  const std::string file = "ledger.jsonl";
  const std::vector<std::string> lines = lines_of(file);
  bool gap = false;  // of lines that are damaged, and so of steps that are not known to be missing
  int64_t last = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto number = static_cast<int64_t>(i) + 1;
    const auto damaged = [&](const std::string& what) { damage_.push_back({file, number, what}); };
    std::string fault = fault_of_seal(lines[i]);
    if (i == 0 && !fault.empty()) refuse_older_ledger(lines[i], path_ / file);
    if (fault.empty() && lines[i].starts_with("{\"ledger\":")) {
      if (i == 0) header_ = LedgerHeader::parse(lines[i]);  // of another version it is a Failure
      else damaged("it is another header");
      continue;
    }
    LedgerLine line;
    try {
      if (fault.empty()) line = LedgerLine::parse(lines[i]);
    } catch (const Failure&) {
      fault = "it is no line of a ledger";
    }
    if (!fault.empty()) {
      damaged(i == 0 ? "the header: " + fault : fault);
      gap = gap || i > 0;
      continue;
    }
    if (i == 0) damaged("it is that of a step where the header should be");
    const auto known = lines_.find(line.step);
    if (known != lines_.end())
      damaged(fmt::format("it is a second one of step {}, {}", line.step,
                          known->second.text() == lines[i] ? "the same" : "and says something else"));
    else if (line.step <= last) damaged(fmt::format("it is that of step {}, out of order", line.step));
    else if (line.step > last + 1 && !gap)
      damaged(fmt::format("it is that of step {}, the one before of step {}: lines are missing", line.step, last));
    lines_.try_emplace(line.step, line);
    last = std::max(last, line.step);
    gap = false;
  }
  if (lines.empty()) damage_.push_back({file, 0, "it has no whole line"});
}

void RunRecord::read_digests() {
  const std::string file = "digests.jsonl";
  const std::vector<std::string> lines = lines_of(file);
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto damaged = [&](const std::string& what) { damage_.push_back({file, static_cast<int64_t>(i) + 1, what}); };
    try {
      if (const std::string fault = fault_of_seal(lines[i]); !fault.empty()) damaged(fault);
      else if (lines[i].starts_with("{\"digests\":")) digest_header_ = DigestHeader::parse(lines[i]);
      else if (!digests_.emplace(DigestLine::parse(lines[i]).step, lines[i]).second)
        damaged("its step was told before");
    } catch (const Failure& failure) {
      damaged(failure.what());
    }
  }
  if (!lines.empty() && !digest_header_) damage_.push_back({file, 0, "without its header it tells nothing"});
}

std::optional<DigestLine> RunRecord::digests(int64_t step) const {
  const auto found = digests_.find(step);
  if (found == digests_.end() || !digest_header_) return std::nullopt;
  return DigestLine::parse(found->second);
}

void RunRecord::read_workers() {
  std::map<PeerId, int> ids;
  if (fs::exists(path_ / "generations"))
    for (const auto& entry : fs::directory_iterator(path_ / "generations")) {
      const std::string name = "generations/" + entry.path().filename().string();
      if (entry.path().extension() != ".json" || entry.path().filename().string().front() == '.') continue;
      try {
        for (const GenerationMember& m : generation_from(parsed(read_file(entry.path()))).members) ids[m.peer] = m.id;
      } catch (const std::exception& error) {
        damage_.push_back({name, 0, error.what()});
      }
    }
  for (const Json& event : events_) {
    if (event["event"] != "hello" || !event.contains("peer") || !event["peer"].is_number_unsigned()) continue;
    const Json environment = event.contains("environment") ? event["environment"] : Json();
    if (!environment.is_object()) continue;
    const PeerId peer = event["peer"].get<PeerId>();
    workers_.push_back({ids.contains(peer) ? ids[peer] : 0, peer, event["time"].get<std::string>(), environment});
  }
}

std::optional<Digest> RunRecord::state(int64_t step) const {
  const auto line = lines_.find(step);
  if (line != lines_.end() && line->second.state) return line->second.state;
  return store_.manifest_digest(step);
}

}  // namespace elinvar
