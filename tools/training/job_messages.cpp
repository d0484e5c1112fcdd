// The process of the coordinator: what it is told, and what it says.
#include <unistd.h>

#include "tensor/base/check.h"
#include "tensor/base/reason.h"
#include "tools/cli/standard_streams.h"
#include "tools/training/control.h"
#include "tools/training/environment.h"
#include "tools/training/job_process.h"
#include "tools/training/profile_report.h"
#include "tools/training/program.h"

namespace elinvar {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kRepeated = 2;      // updates, by a worker of another build
constexpr int kMostTurnedAway = 100;  // that events.jsonl tells of: strangers shall not fill the disk

namespace {

// A run begins with what its first worker says of itself: all of that must be there.
void check_hello(const Json& about) {
  (void)parse_config(about.at("config").get<std::string>(), "config.toml");
  for (const char* text : {"endpoint", "data"}) (void)about.at(text).get<std::string>();
  for (const char* number : {"parameters", "samples", "pid", "promised", "numerics_version", "protocol"})
    (void)about.at(number).get<int64_t>();
  for (const char* yes : {"tokens", "active", "loaded", "ready"}) (void)about.at(yes).get<bool>();
  const int64_t steps = about.at("steps").get<int64_t>();
  check(steps > 0, "expected at least one step, got {}", steps);
  for (const char* tensors : {"gradient", "state"}) (void)layout_from(about.at(tensors));
  for (const char* text : {"isa", "device"}) (void)about.at("environment").at(text).get<std::string>();
  (void)about.at("environment").at("threads").get<int>();
}

// Of one message of a reduction.
int64_t most_bytes(const Json& about) {
  return std::min(about.at("parameters").get<int64_t>(), MemberOptions().bucket_elements) * int64_t{sizeof(float)};
}

}  // namespace

void JobProcess::send(PeerId peer, Message message) {
  message.run = run_;
  message.sender = self_;
  if (message.generation == 0 && coordinator_ && coordinator_->generation())
    message.generation = coordinator_->generation()->number;
  transport_->send(peer, std::move(message));
}

// Whether the run begins with a checkpoint, not with a new network.
bool JobProcess::imported() const {
  const fs::path from = command_.replay.empty() ? path_ : fs::path(command_.replay);
  return fs::exists(from / "checkpoints" / "step-0");
}

void JobProcess::flush() {
  for (Action& action : coordinator_->take_actions()) {
    if (action.what == Action::What::connect) transport_->connect(action.peer, action.endpoint);
    if (action.what == Action::What::disconnect) transport_->disconnect(action.peer);
    if (action.what == Action::What::send) send(action.peer, std::move(action.message));
  }
  if (saboteur_ && !coordinator_->ending()) saboteur_->act();
}

void JobProcess::note(const Moment& moment) {
  if (saboteur_) saboteur_->note(moment);
}

void JobProcess::turned_away(const std::string& reason) {
  if (directory_ && ++turned_away_ <= kMostTurnedAway) event("turned_away", {{"reason", reason}});
}

// One that trains, or was started with the run, has met what the others would meet, too; anyone else is only not to be.
void JobProcess::worker_failed(const Message& m) {
  std::string reason = "a worker failed";
  int exit_code = 3;
  try {
    reason = m.body.value("reason", reason);
    exit_code = m.body.value("exit_code", exit_code);
  } catch (const Json::exception&) {  // it failed all the same
  }
  const bool beginning = !coordinator_ || coordinator_->phase() == Coordinator::Phase::starting;
  const auto pid = pids_.find(m.sender);
  const bool own = pid != pids_.end() && local_.started(pid->second);
  if (!(beginning && own) && !(coordinator_ && coordinator_->trains(m.sender))) {
    turned_away("a worker failed: " + reason);
    if (!coordinator_) return;
    coordinator_->lost(m.sender, "failed: " + reason, now());
    return flush();
  }
  std::string whose;
  if (const auto& g = coordinator_ ? coordinator_->generation() : std::nullopt; g && g->members.size() > 1)
    if (const int index = g->index_of(m.sender); index >= 0)
      whose = fmt::format("worker {}: ", g->members[static_cast<size_t>(index)].id);
  check(exit_code != 2, "{}{}", whose, reason);
  fail("{}{}", whose, reason);
}

// "", or why the run, as its ledger or its first worker have it, would not be reproducible with this worker.
std::string JobProcess::other_kind(const Json& about) const {
  if (!config_.fast()) return "";
  const std::string kind = kind_of_gpu(about.at("environment"));
  std::string ours = kind;
  if (!about_.is_null()) ours = kind_of_gpu(about_.at("environment"));
  else if (const auto header = ledger_header(path_ / "ledger.jsonl")) {
    check(!header->kind.empty(),
          "{} does not name the kind of GPU that it is of, and fast products have had other bits since: finish the run "
          "with the program that began it, or choose another run directory",
          (path_ / "ledger.jsonl").string());
    ours = header->kind;
  }
  if (kind == ours) return "";
  return fmt::format("it computes on {}, the run on {}; with run.numerics = \"fast\" bits are those of one kind", kind,
                     ours);
}

// The updates that a worker of another build must repeat. The second one also depends on the optimiser's first step.
std::vector<LedgerLine> JobProcess::first_updates() const {
  std::vector<LedgerLine> lines;
  if (!directory_ || directory_->recorded() < kRepeated) return lines;
  for (int64_t update = 1; update <= kRepeated; ++update) {
    lines.push_back(directory_->line(update));
    if (lines.back().batch_size != lines.front().batch_size) lines.pop_back();
  }
  return lines;
}

// The build that joining workers are compared with: this process's own if it starts workers, else the first worker's.
Json JobProcess::build() const {
  if (command_.workers > 0) return {{"build_id", build_id()}, {"binary", fs::read_symlink("/proc/self/exe").string()}};
  return about_.is_null() ? Json::object() : about_.at("environment");
}

// "", or why this worker has not shown that it computes the run's bits. A worker that returns has shown it before.
std::string JobProcess::other_build(const Json& about) const {
  const Json &environment = about.at("environment"), ours = build();
  if (command_.any_build || build_of(ours).empty() || build_of(environment) == build_of(ours)) return "";
  if (about.value("active", false) || about.value("loaded", false) || about.value("warm", false)) return "";
  const std::string other = fmt::format("it is another build of this program, {}, than the run's, {}",
                                        name_of_build(environment), name_of_build(ours));
  const Json repeated = about.value("repeated", Json::array());
  const std::vector<LedgerLine> lines = first_updates();
  if (lines.empty() || repeated.size() < lines.size())
    return fmt::format(
        "{}, and has not shown that it computes the same bits: it can, by repeating them, once the first {} "
        "updates are made, where it sees the weights that the run begins with; or start the run with "
        "--any-build",
        other, kRepeated);
  for (size_t i = 0; i < lines.size(); ++i)
    if (repeated[i] != lines[i].gradient.hex())
      return fmt::format("{}, and computes other bits: the gradient of update {} is {}, and {} in the ledger", other,
                         i + 1, repeated[i].dump(), lines[i].gradient.hex());
  return "";
}

// Of a run that goes on. Others may come, but nobody else starts what this process was to start.
void JobProcess::refuse_first(const Message& hello, const std::string& reason) {
  const auto pid = pids_.find(hello.sender);
  check(pid == pids_.end() || !local_.started(pid->second),
        "{} cannot go on with this worker: {}; choose another run "
        "directory, or a machine of that kind",
        path_.string(), reason);
  turned_away(reason);
  send(hello.sender, {.kind = "refused", .body = {{"reason", reason}, {"again", false}}});
}

// Whoever sends what makes no sense is out: it is of no use to the others, and no reason for them to stop.
void JobProcess::receive(const Message& m) {
  if (m.kind != "ask" && m.kind != "ctl" && m.run != run_) return;
  std::string malformed, other;
  if (m.kind == "failed") return worker_failed(m);
  const bool first = m.kind == "hello" && !coordinator_;
  try {
    if (first) {
      check_hello(m.body);
      other = other_build(m.body);
    } else {
      take(m);
    }
  } catch (const Json::exception& error) {
    malformed = reason_of(error);
  } catch (const UsageError& error) {
    malformed = reason_of(error);
  }
  if (malformed.empty() && first) {  // what goes wrong now is the run's own fault
    if (other.empty()) other = other_kind(m.body);
    if (!other.empty()) return refuse_first(m, other);
    open(m.body);
    return take(m);
  }
  if (malformed.empty()) return;
  turned_away(fmt::format("a malformed '{}': {}", m.kind, malformed));
  if (!coordinator_) return;
  coordinator_->lost(m.sender, fmt::format("sent a malformed '{}'", m.kind), now());
  flush();
}

void JobProcess::take(const Message& m) {
  if (m.kind == "ask") {
    transport_->connect(m.sender, m.body.at("endpoint").get<std::string>());
    pids_[m.sender] = m.body.at("pid").get<pid_t>();
    send(m.sender, {.kind = "job",
                    .body = {{"text", text_},
                             {"file", command_.config},
                             {"overrides", command_.overrides},
                             {"directory", fs::absolute(path_).string()},
                             {"chaos", command_.chaos},
                             {"imported", imported()},
                             // What is to happen at a step, and not up to a second later.
                             {"facts_at_once", !command_.chaos.empty() || command_.until.has_value()},
                             {"hold", command_.hold},
                             {"build", build_of(build())},
                             {"repeat", command_.any_build ? 0 : first_updates().size()},
                             {"arrival", pids_.size() - 1},
                             {"tenure", directory_ ? directory_->tenure().number() : 1},
                             {"endpoint", transport_->endpoint()}}});
    return;
  }
  if (m.kind == "ctl") return control(m);
  if (!coordinator_) return;
  const bool of_state = PartWriter::takes(m) || m.kind == "saved";
  if (of_state && !coordinator_->of_this_history(m)) return;
  if (PartWriter::takes(m)) part_writer().add(m);
  else if (m.kind == "saved") settle(directory_->saved(m));
  else if (m.kind == "fed") fed(m);
  else if (m.kind == "shown") shown(m);
  else if (m.kind == "sabotaged") event(m.body.at("event").get<std::string>(), m.body.at("fields"));
  else coordinator_->receive(m, now());
  flush();
}

void JobProcess::open_directory() {
  directory_.emplace(RunDirectoryOptions{.path = path_,
                                         .state_digest_every = config_.run.state_digest_every,
                                         .checkpoint_every = config_.run.checkpoint_every,
                                         .keep = config_.run.keep,
                                         .resume = command_.resume,
                                         .replay = command_.replay,
                                         .batch_size = config_.adaptive() ? config_.run.batch_size : 0,
                                         .takes_over = command_.takes_over},
                     Tenure{.run = run_,
                            .peer = self_,
                            .endpoint = transport_->endpoint(),
                            .job = {{"text", text_},
                                    {"file", command_.config},
                                    {"overrides", command_.overrides},
                                    {"min_workers", command_.min_workers},
                                    {"hold", command_.hold},
                                    {"any_build", command_.any_build},
                                    {"until", command_.until ? Json(*command_.until) : Json()},
                                    {"device", command_.device},
                                    {"threads", command_.threads},
                                    {"isa", command_.isa},
                                    {"metrics_port", command_.metrics_port.value_or(-1)},
                                    {"metrics_address", command_.metrics_address}}});
  for (const std::string& notice : directory_->notices()) say(stderr, "{}\n", notice);
  report_.emplace(command_, config_, *directory_, began_);
  run_ = directory_->run();
  records_.newest = directory_->generations().newest();
  if (records_.newest) records_.before = directory_->generations().read(records_.newest->follows);
  records_.members_alive = directory_->members_alive();
  write_json(path_ / "coordinator.json",
             {{"peer", self_}, {"endpoint", transport_->endpoint()}, {"pid", getpid()}, {"run", run_}});
}

// The first worker has built the network and knows how many steps there are.
void JobProcess::open(const Json& about) {
  const Config resolved = parse_config(about.at("config").get<std::string>(), "config.toml");
  if (!command_.replay.empty()) check_same_run(command_.replay, resolved, about.at("data").get<std::string>());
  if (!directory_) open_directory();
  if (command_.resume) check_same_run(path_, resolved, about.at("data").get<std::string>());
  about_ = about;
  const auto steps = about.at("steps").get<int64_t>();
  const ScalingOptions scaling = {.batch = config_.adaptive() ? config_.run.batch_size : 0,
                                  .batch_max = config_.run.batch_max};
  const LedgerOptions ledger = resolved.ledger_options();
  directory_->begin({.numerics = resolved.run.numerics,
                     .scaling = resolved.run.scaling,
                     .kind = resolved.fast() ? kind_of_gpu(about.at("environment")) : "",
                     .virtual_ranks = resolved.run.virtual_ranks,
                     .config = digest(resolved),
                     .data = Digest::parse(about.at("data").get<std::string>()),
                     .options = ledger},
                    {.tensors_every = ledger.tensors_every,
                     .gradient = layout_from(about.at("gradient")),
                     .state = layout_from(about.at("state"))});
  directory_->set_steps(config_.adaptive() ? INT64_MAX >> 2 : steps);
  if (profile_) forget_profiles(path_);
  report_->begin(about, transport_->endpoint());
  const int64_t first = directory_->first_step();
  coordinator_.emplace(CoordinatorOptions{.run = run_,
                                          .tenure = directory_->tenure().number(),
                                          .endpoint = transport_->endpoint(),
                                          .steps = steps,
                                          .initial_workers = command_.workers,
                                          .min_workers = command_.min_workers,
                                          .plan = {.vranks = config_.run.virtual_ranks},
                                          .scaling = scaling,
                                          .stuck = patience_for(most_bytes(about)),
                                          .hold = command_.hold},
                       *this, first, records_, now());
  if (!command_.chaos.empty())
    saboteur_.emplace(
        chaos_,
        Saboteur::World{.workers = [this] { return workers_here(coordinator_->status(now()), local_.alive()); },
                        .start_worker = [this] { start_worker(); },
                        .event = [this](const std::string& n, const Json& f) { event(n, f); }},
        records_.newest ? directory_->recorded() : -1);
  event("start", {{"step", first},
                  {"steps", steps},
                  {"device", about.at("environment").at("device")},
                  {"isa", about.at("environment").at("isa")},
                  {"threads", about.at("environment").at("threads")},
                  {"workers", command_.workers}});
}

void JobProcess::settle(const std::vector<RunDirectory::Saved>& checkpoints) {
  for (const auto& [step, failure] : checkpoints)
    if (failure.empty()) coordinator_->checkpoint_committed(step, now());
    else coordinator_->checkpoint_failed(step, failure, now());
}

// For workers that do not see the run directory.
PartWriter& JobProcess::part_writer() {
  if (!part_writer_)
    part_writer_.emplace(
        CheckpointStore(path_ / "checkpoints"),
        [this](PeerId worker, Message answer) {
          answer.run = run_;
          answer.sender = self_;
          transport_->send(worker, std::move(answer));
        },
        [this] { transport_->wake(); });
  return *part_writer_;
}

// A member has sent a learner its part of the state.
void JobProcess::fed(const Message& m) {
  Json fields = m.body;
  fields["step"] = m.step;
  fields["from"] = m.sender;
  event("fed", fields);
}

// What people are shown of tensors counts for nothing: whoever may not, or says too much, is not listened to.
void JobProcess::shown(const Message& m) {
  if (!coordinator_->trains(m.sender) || m.blobs.size() != 1) return;
  report_->shown(m.step, {reinterpret_cast<const char*>(m.blobs[0].data), m.blobs[0].bytes});
}

void JobProcess::control(const Message& m) {
  transport_->connect(m.sender, m.body.at("endpoint").get<std::string>());
  Json answer = {{"error", "the job is still starting"}};
  if (coordinator_)
    answer = elinvar::control(
        m.body, *coordinator_, [this] { start_worker(); }, [this] { return status(); }, now());
  send(m.sender, {.kind = "answer", .body = answer});
  if (coordinator_) flush();
}

Json JobProcess::status() const {
  Json status = coordinator_->status(now());
  status.update(report_->status(now()));
  return status;
}

}  // namespace elinvar
