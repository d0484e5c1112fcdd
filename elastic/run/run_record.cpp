#include "elastic/run/run_record.h"

#include <algorithm>
#include <fstream>

#include "elastic/ledger/sealed_line.h"
#include "elastic/step/generation.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tensor/base/reason.h"

namespace elinvar {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr const char* kNoSuchLine = "it is not what the file consists of";

Json parsed(const std::string& text) { return parse_json(text); }

}  // namespace

std::string to_string(const Damage& damage) {
  return damage.line == 0 ? fmt::format("{}: {}", damage.file, damage.what)
                          : fmt::format("{}, line {}: {}", damage.file, damage.line, damage.what);
}

RunRecord::RunRecord(const fs::path& directory)
    : path_(directory), store_(directory / "checkpoints"), checkpoints_(store_.steps()) {
  check(fs::exists(path_ / "ledger.jsonl"), "{} is no run directory: it has no ledger.jsonl", path_.string());
  read_ledger();
  read_digests();
  read_events();
  if (fs::exists(path_ / "environment.json")) {
    const Json json = parsed(read_file(path_ / "environment.json"));
    if (json.is_object()) environment_ = json;
    else damage_.push_back({"environment.json", 0, "it is no JSON object"});
  }
  read_workers();
}

int64_t RunRecord::read_lines(const std::string& file, const EachLine& each, std::vector<Damage>& damage) const {
  if (!fs::exists(path_ / file)) return 0;
  (void)File::open(path_ / file);  // throws Failure if it is not a regular file; an ifstream would block on a pipe
  std::ifstream stream(path_ / file, std::ios::binary);
  if (!stream) fail("cannot read {}", (path_ / file).string());
  int64_t number = 0, offset = 0;
  for (std::string line; std::getline(stream, line); offset += static_cast<int64_t>(line.size()) + 1) {
    if (stream.eof()) {
      damage.push_back(
          {file, number + 1, "it is cut off, as a crash leaves it: the line does not count", /*cut_off=*/true});
      break;
    }
    each(line, ++number, {offset, line.size()});
  }
  return number;
}

std::vector<Damage> RunRecord::metrics(const std::function<void(const Json& line)>& each) const {
  const std::string file = "metrics.jsonl";
  std::vector<Damage> damage;
  const auto read = [&](const std::string& line, int64_t number, const Place&) {
    const Json json = parsed(line);
    if (json.is_object() && json.contains("step") && json["step"].is_number_integer()) each(json);
    else damage.push_back({file, number, kNoSuchLine});
  };
  read_lines(file, read, damage);
  return damage;
}

void RunRecord::read_events() {
  const std::string file = "events.jsonl";
  const auto read = [&](const std::string& line, int64_t number, const Place&) {
    Json json = parsed(line);
    const auto has_text = [&](const char* key) { return json.contains(key) && json[key].is_string(); };
    if (json.is_object() && has_text("time") && has_text("event")) events_.push_back(std::move(json));
    else damage_.push_back({file, number, kNoSuchLine});
  };
  read_lines(file, read, damage_);
}

void RunRecord::read_ledger() {
  const std::string file = "ledger.jsonl";
  bool gap = false;  // after damaged lines it is not known which steps are missing
  int64_t last = 0;
  const auto read = [&](const std::string& text, int64_t number, const Place&) {
    const auto damaged = [&](const std::string& what) { damage_.push_back({file, number, what}); };
    const bool first = number == 1;
    std::string fault = fault_of_seal(text);
    if (first && !fault.empty()) refuse_older_ledger(text, path_ / file);
    if (fault.empty() && text.starts_with("{\"ledger\":")) {
      if (first) header_ = LedgerHeader::parse(text);  // throws Failure if it has another version
      else damaged("it is another header");
      return;
    }
    LedgerLine line;
    try {
      if (fault.empty()) line = LedgerLine::parse(text);
    } catch (const Failure&) {
      fault = "it is no line of a ledger";
    }
    if (!fault.empty()) {
      damaged(first ? "the header: " + fault : fault);
      gap = gap || !first;
      return;
    }
    if (first) damaged("it is that of a step where the header should be");
    const auto known = lines_.find(line.step);
    if (known != lines_.end())
      damaged(fmt::format("it is a second one of step {}, {}", line.step,
                          known->second.text() == text ? "the same" : "and says something else"));
    else if (line.step <= last) damaged(fmt::format("it is that of step {}, out of order", line.step));
    else if (line.step > last + 1 && !gap)
      damaged(fmt::format("it is that of step {}, the one before of step {}: lines are missing", line.step, last));
    last = std::max(last, line.step);
    gap = false;
    lines_.try_emplace(line.step, std::move(line));
  };
  if (read_lines(file, read, damage_) == 0) damage_.push_back({file, 0, "it has no whole line"});
}

void RunRecord::read_digests() {
  const std::string file = "digests.jsonl";
  const auto read = [&](const std::string& line, int64_t number, const Place& place) {
    const auto damaged = [&](const std::string& what) { damage_.push_back({file, number, what}); };
    try {
      if (const std::string fault = fault_of_seal(line); !fault.empty()) damaged(fault);
      else if (line.starts_with("{\"digests\":")) digest_header_ = DigestHeader::parse(line);
      else if (!digests_.emplace(DigestLine::parse(line).step, place).second) damaged("its step was told before");
    } catch (const Failure& failure) {
      damaged(failure.what());
    }
  };
  if (read_lines(file, read, damage_) > 0 && !digest_header_)
    damage_.push_back({file, 0, "without its header it tells nothing"});
}

std::optional<DigestLine> RunRecord::digests(int64_t step) const {
  const auto found = digests_.find(step);
  if (found == digests_.end() || !digest_header_) return std::nullopt;
  std::string line(found->second.bytes, '\0');
  File::open(path_ / "digests.jsonl").read(found->second.offset, line.data(), line.size());
  return DigestLine::parse(line);
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
        damage_.push_back({name, 0, reason_of(error)});
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
  const bool saved = std::binary_search(checkpoints_.begin(), checkpoints_.end(), step);
  return saved ? store_.manifest_digest(step) : std::nullopt;
}

}  // namespace elinvar
