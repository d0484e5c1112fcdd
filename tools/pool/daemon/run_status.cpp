#include "tools/pool/daemon/run_status.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "elastic/ledger/utc_time.h"
#include "elastic/run/generation_store.h"
#include "elastic/run/term.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"

namespace elinvar::pool {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr double kSilent = 5;          // seconds without a heartbeat, as for workers (elastic/session/watch.h)
constexpr int64_t kEvents = 16 << 20;  // bytes of each file that are read at first
constexpr int64_t kMetrics = 128 << 10;
constexpr int64_t kWarmUp = 2;  // steps of a generation that are not measured
constexpr size_t kTurns = 200;  // steps that are kept

template <class F>
void each_object(const std::string& text, F visit) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    try {
      if (json.is_object()) visit(json);
    } catch (const Json::exception&) {  // skip a damaged line
    }
  }
}

double time_of(const Json& line) { return seconds_of_utc(line.value("time", "")).value_or(0); }

// Returns a worker's name from its command line.
std::string name_in(const Json& environment) {
  const Json command = environment.value("command", Json::array());
  for (size_t i = 0; i + 1 < command.size(); ++i)
    if (command[i] == "--name") return command[i + 1].get<std::string>();
  return "";
}

}  // namespace

std::string RunStatusReader::Tail::more(const fs::path& path, int64_t at_first) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return "";
  const File file = File::open(path);
  const int64_t size = file.size();
  if (read < 0 || size < read) {  // a new file, or one that a resumed run has truncated
    read = std::max<int64_t>(0, size - at_first);
    whole = read == 0;
    rest.clear();
  }
  std::string text(static_cast<size_t>(size - read), '\0');
  file.read(read, text.data(), text.size());
  read = size;
  text.insert(0, rest);
  const size_t end = text.rfind('\n') + 1;
  rest = text.substr(end);
  text.resize(end);
  return text;
}

const RunStatus& RunStatusReader::look(double now) {
  for (const auto part : {&RunStatusReader::look_at_events, &RunStatusReader::look_at_metrics,
                          &RunStatusReader::look_at_members, &RunStatusReader::look_at_result}) {
    try {
      (this->*part)();
    } catch (const std::exception&) {  // the file is being replaced; the next look will find it
    }
  }
  try {
    look_at_term(now);
  } catch (const std::exception&) {
  }
  if (now - beaten_ > kSilent) status_.alive = false;
  return status_;
}

void RunStatusReader::look_at_term(double now) {
  const std::optional<Term> term = newest_term(path_);
  if (!term) return;
  const int64_t beats = beats_of(path_, term->number);
  const bool first = beats_ < 0, counted = term->number != term_ || beats != beats_;
  term_ = term->number;
  beats_ = beats;
  if (first) {  // the last heartbeat may be older than this first look
    const fs::path beat = path_ / "coordinators" / (std::to_string(term_) + ".beat");
    const auto age = fs::file_time_type::clock::now() - fs::last_write_time(beat);
    beaten_ = now - std::chrono::duration<double>(age).count();
  } else if (counted || now < beaten_) {  // or the clock was set back
    beaten_ = now;
  }
  status_.alive = now - beaten_ <= kSilent;
  status_.endpoint = term->endpoint;
}

void RunStatusReader::look_at_events() {
  each_object(events_.more(path_ / "events.jsonl", kEvents), [&](const Json& event) {
    const std::string what = event.value("event", "");
    if (what == "start") {
      status_.steps = event.value("steps", status_.steps);
      status_.coordinated_at = time_of(event);
      status_.first_step_at = status_.computed_at = 0;
      status_.turns.clear();
    }
    if (what == "readers") status_.readers = event.value("reason", "");
    if (what == "end") status_.computed_at = time_of(event);
    if (what != "hello") return;
    const std::string name = name_in(event.value("environment", Json::object()));
    if (name.empty()) return;
    status_.registered.insert(name);
    names_[event.value("peer", uint64_t{0})] = name;
  });
}

void RunStatusReader::look_at_members() {
  const std::optional<Generation> newest = GenerationStore(path_).newest();
  status_.members.clear();
  if (!newest) return;
  for (const GenerationMember& member : newest->members)
    if (const auto name = names_.find(member.peer); name != names_.end()) status_.members.insert(name->second);
}

void RunStatusReader::look_at_metrics() {
  each_object(metrics_.more(path_ / "metrics.jsonl", kMetrics), [&](const Json& line) {
    if (line.contains("validation_loss")) validates_ = true;
    if (!line.contains("generation") || !line.contains("step")) return;
    const auto generation = line["generation"].get<int64_t>(), step = line["step"].get<int64_t>();
    const double time = time_of(line);
    // Runs of older versions recorded steps under the number of the next generation, so the number of workers is
    // compared too.
    const int workers = line.value("workers", 0);
    if (generation != status_.generation || workers != status_.workers || step != status_.step + 1) {
      status_.generation = generation;
      status_.measured_steps = steps_of_generation_ = 0;
      status_.measured_seconds = 0;
      status_.validations = 0;
      status_.validation_seconds = 0;
    } else if (validates_) {
      validated(time - last_time_ - usual_step());
    } else if (++steps_of_generation_ > kWarmUp) {
      ++status_.measured_steps;
      status_.measured_seconds += std::max(0.0, time - last_time_);
    }
    validates_ = false;
    const double before = std::exchange(last_time_, time);
    // If only the end of the file was read, it may begin with a later step.
    const bool the_first = metrics_.whole || (before > 0 && before <= status_.coordinated_at);
    if (status_.first_step_at == 0 && time > status_.coordinated_at && the_first) status_.first_step_at = time;
    status_.step = step;
    status_.workers = workers;
    if (time > status_.coordinated_at) turn({time, workers, generation});
    if (line.contains("loss") && line["loss"].is_number()) status_.loss = line["loss"].get<double>();
  });
}

void RunStatusReader::turn(const StepRecord& step) {
  std::vector<StepRecord>& turns = status_.turns;
  const size_t n = turns.size();
  if (n >= 2 && turns[n - 1].goes_on(turns[n - 2]) && step.goes_on(turns[n - 1])) turns.back() = step;
  else turns.push_back(step);
  if (turns.size() > kTurns) turns.erase(turns.begin(), turns.begin() + kTurns / 2);
}

double RunStatusReader::usual_step() const {
  return status_.measured_steps > 0 ? status_.measured_seconds / static_cast<double>(status_.measured_steps) : 0;
}

void RunStatusReader::validated(double seconds) {
  if (status_.measured_steps == 0) return;  // the duration without a validation is not known
  ++status_.validations;
  status_.validation_seconds += std::max(0.0, seconds);
}

void RunStatusReader::look_at_result() {
  status_.result.clear();
  if (!fs::exists(path_ / "result.json")) return;
  const Json result = Json::parse(read_file(path_ / "result.json"), nullptr, /*allow_exceptions=*/false);
  if (!result.is_object()) return;
  if (result.value("status", "") == "finished") {  // everything that it wrote before is complete
    look_at_events();
    look_at_metrics();
    if (std::exchange(validates_, false)) validated(status_.computed_at - last_time_);
  }
  status_.result = result.value("status", "");
  status_.reason = result.value("reason", "");
  status_.digest = result.value("digest", "");
  status_.step = result.value("step", status_.step);
  status_.steps = std::max(status_.steps, result.value("steps", status_.steps));
}

}  // namespace elinvar::pool
