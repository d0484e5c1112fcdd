// The coordinator's process: the messages that it receives and sends.
#include <unistd.h>

#include "comm/fields.h"
#include "tensor/base/check.h"
#include "tensor/base/reason.h"
#include "tools/cli/standard_streams.h"
#include "tools/training/environment.h"
#include "tools/training/job_process.h"
#include "tools/training/kept_form.h"
#include "tools/training/profile_report.h"
#include "tools/training/program.h"

namespace elinvar {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kRepeated = 2;      // updates that a worker of another build repeats
constexpr size_t kMostNotices = 100;  // any process may send some

namespace {

// Checks the first worker's description of the run.
void check_first(const WorkerInfo& about) {
  (void)parse_config(about.config, "config.toml");
  check(about.steps > 0, "expected at least one step, got {}", about.steps);
}

// Returns the largest size of one message of a reduction.
int64_t most_bytes(const WorkerInfo& about) {
  return std::min(about.parameters, MemberOptions().bucket_elements) * int64_t{sizeof(float)};
}

}  // namespace

void JobProcess::send(PeerId peer, Message message) {
  message.sender = self_;
  if (message.generation == 0 && coordinator_ && coordinator_->job().current)
    message.generation = coordinator_->job().current->number;
  transport_->send(peer, packet_of(std::move(message), run_));
}

// Returns whether the run begins with an imported checkpoint and not with a new network.
bool JobProcess::imported() const {
  const fs::path from = command_.replay.empty() ? path_ : fs::path(command_.replay);
  return fs::exists(from / "checkpoints" / "step-0");
}

void JobProcess::flush() {
  for (Action& action : coordinator_->take_actions()) {
    if (action.what == Action::What::connect) transport_->connect(action.peer, action.endpoint);
    if (action.what == Action::What::disconnect) {
      transport_->disconnect(action.peer);
      forget(action.peer);
    }
    if (action.what == Action::What::send) send(action.peer, std::move(action.message));
  }
  if (fault_injector_ && !coordinator_->job().ending) fault_injector_->act();
}

void JobProcess::note(const Moment& moment) {
  if (fault_injector_) fault_injector_->note(moment);
}

void JobProcess::turned_away(const std::string& reason) {
  if (directory_) event("turned_away", {{"reason", reason}});
}

// The last words of a child may come after its end, and there are only so many children.
void JobProcess::forget(PeerId peer) {
  if (const auto asked = pids_.find(peer); asked != pids_.end() && asked->second == 0) pids_.erase(asked);
}

// If the failed worker trained, or was started with the run, its failure would hit the others too; any other worker is
// only turned away.
void JobProcess::worker_failed(const Message& m, const messages::Failed& failed) {
  const std::string& reason = failed.reason;
  const bool beginning = !coordinator_ || coordinator_->job().phase == Coordinator::Phase::starting;
  const auto pid = pids_.find(m.sender);
  const bool own = pid != pids_.end() && local_.started(pid->second);
  if (!(beginning && own) && !(coordinator_ && coordinator_->job().trains(m.sender))) {
    turned_away("a worker failed: " + reason);
    if (!coordinator_) return;
    coordinator_->lost(m.sender, "failed: " + reason, now());
    return flush();
  }
  std::string whose;
  if (const auto& g = coordinator_ ? coordinator_->job().current : std::nullopt; g && g->members.size() > 1)
    if (const int index = g->index_of(m.sender); index >= 0)
      whose = fmt::format("worker {}: ", g->members[static_cast<size_t>(index)].id);
  check(failed.exit_code != 2, "{}{}", whose, reason);
  fail("{}{}", whose, reason);
}

// Returns why the run, as its ledger or its first worker describes it, would not be reproducible with this worker; ""
// if it would be.
std::string JobProcess::other_kind(const WorkerInfo& about) const {
  if (!config_.fast()) return "";
  const std::string kind = kind_of_gpu(*about.environment);
  std::string ours = kind;
  if (about_) ours = kind_of_gpu(*about_->environment);
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

// Returns the updates that a worker of another build must repeat. The second one also depends on the optimiser's first
// step.
std::vector<LedgerLine> JobProcess::first_updates() const {
  std::vector<LedgerLine> lines;
  if (!directory_ || directory_->facts().recorded() < kRepeated) return lines;
  for (int64_t update = 1; update <= kRepeated; ++update) {
    lines.push_back(directory_->facts().line(update));
    if (lines.back().batch_size != lines.front().batch_size) lines.pop_back();
  }
  return lines;
}

// Returns the build that joining workers are compared with: this process's own if it starts workers, else the first
// worker's.
Json JobProcess::build() const {
  if (command_.workers > 0) return {{"build_id", build_id()}, {"binary", fs::read_symlink("/proc/self/exe").string()}};
  return about_ ? *about_->environment : Json::object();
}

// Returns why this worker has not shown that it computes the run's bits, or "". A worker that returns has shown it
// before.
std::string JobProcess::other_build(const messages::Hello& hello) const {
  const Json &environment = *hello.about.environment, ours = build();
  if (command_.any_build || build_of(ours).empty() || build_of(environment) == build_of(ours)) return "";
  if (hello.active || hello.loaded || hello.warm) return "";
  const std::string other = fmt::format("it is another build of this program, {}, than the run's, {}",
                                        name_of_build(environment), name_of_build(ours));
  const std::vector<Digest>& repeated = hello.about.repeated;
  const std::vector<LedgerLine> lines = first_updates();
  if (lines.empty() || repeated.size() < lines.size())
    return fmt::format(
        "{}, and has not shown that it computes the same bits: it can, by repeating them, once the first {} "
        "updates are made, where it sees the weights that the run begins with; or start the run with "
        "--any-build",
        other, kRepeated);
  for (size_t i = 0; i < lines.size(); ++i)
    if (repeated[i] != lines[i].gradient)
      return fmt::format("{}, and computes other bits: the gradient of update {} is {}, and {} in the ledger", other,
                         i + 1, repeated[i].hex(), lines[i].gradient.hex());
  return "";
}

// Refuses the first worker of a resumed run, because others may still join. Fails if this process started the worker:
// nothing else starts another one in its place.
void JobProcess::refuse_first(PeerId worker, const std::string& reason) {
  const auto pid = pids_.find(worker);
  check(pid == pids_.end() || !local_.started(pid->second),
        "{} cannot go on with this worker: {}; choose another run "
        "directory, or a machine of that kind",
        path_.string(), reason);
  turned_away(reason);
  send(worker, {.payload = messages::Refused{.reason = reason}});
}

// A peer that sends a malformed message is evicted, and the others continue.
void JobProcess::receive(const Packet& packet) {
  const bool stranger = packet.kind == messages::Ask::kKind.name || packet.kind == messages::Ctl::kKind.name;
  if (!stranger && packet.run != run_) return;
  std::string malformed;
  Message message;
  try {
    message = message_of(packet);
    const auto* hello = message.as<messages::Hello>();
    if (hello) check_environment(*hello->about.environment);
    if (hello) print_notices(hello->about.notices);
    if (hello && !coordinator_) check_first(hello->about);
    else if (!message.as<messages::Failed>()) return take(message);
  } catch (const UsageError& error) {
    malformed = reason_of(error);
  }
  if (malformed.empty()) {  // a failure from here on is the run's own fault
    if (const auto* failed = message.as<messages::Failed>()) return worker_failed(message, *failed);
    return receive_first(packet, *message.as<messages::Hello>());
  }
  turned_away(fmt::format("a malformed '{}': {}", packet.kind, malformed));
  if (!coordinator_) return;
  coordinator_->lost(packet.sender, fmt::format("sent a malformed '{}'", packet.kind), now());
  flush();
}

// All workers open the same data and report mostly the same notices.
void JobProcess::print_notices(const std::vector<std::string>& notices) {
  for (const std::string& notice : notices)
    if (notices_.size() < kMostNotices && notices_.insert(notice).second) say(stderr, "{}\n", notice);
}

void JobProcess::receive_first(const Packet& packet, const messages::Hello& hello) {
  std::string other = other_build(hello);
  if (other.empty()) other = other_kind(hello.about);
  if (!other.empty()) return refuse_first(packet.sender, other);
  open(hello.about);
  receive(packet);  // as from any other worker
}

void JobProcess::asked(const Message& m, const messages::Ask& ask) {
  transport_->connect(m.sender, ask.endpoint);
  const bool own = local_.started(ask.pid) && (peer_of(ask.pid) == 0 || peer_of(ask.pid) == m.sender);
  if (pids_.insert_or_assign(m.sender, own ? ask.pid : 0).second) ++asked_;
  if (ask.protocol != kProtocolVersion) {
    const std::string reason =
        fmt::format("it speaks another version of the protocol{}; the job has version {}: take the program of the job",
                    ask.protocol ? fmt::format(", {}", *ask.protocol) : "", kProtocolVersion);
    turned_away(reason);
    return send(m.sender, {.payload = messages::Refused{.reason = reason}});
  }
  const Arrangement& arrangement = coordinator_ ? coordinator_->job().arrangement : command_.arrangement;
  send(m.sender, {.payload = messages::JobDescription{
                      .text = text_,
                      .file = command_.config,
                      .overrides = command_.overrides,
                      .directory = fs::absolute(path_).string(),
                      .chaos = command_.chaos,
                      .imported = imported(),
                      .zero = coordinator_ ? coordinator_->job().zero_of_newcomers() : command_.arrangement.zero,
                      .tp = arrangement.tp,
                      .pp = arrangement.pp,
                      .facts_at_once = !command_.chaos.empty() || command_.until.has_value(),
                      .hold = command_.hold,
                      .build = build_of(build()),
                      .repeat = command_.any_build ? 0 : static_cast<int64_t>(first_updates().size()),
                      .arrival = asked_ - 1,
                      .term = directory_ ? directory_->term().number() : 1,
                      .endpoint = transport_->endpoint()}});
}

void JobProcess::take(const Message& m) {
  if (const auto* ask = m.as<messages::Ask>()) return asked(m, *ask);
  if (const auto* ctl = m.as<messages::Ctl>()) return control(m, *ctl);
  if (!coordinator_) return;
  const auto* saved = m.as<messages::Saved>();
  const bool of_state = PartWriter::takes(m) || saved;
  if (of_state && !coordinator_->of_this_history(m)) return;
  if (saved)
    check(saved->part >= 0 && saved->part < saved->parts, "expected a part from 0 to {}, got {}", saved->parts - 1,
          saved->part);
  if (PartWriter::takes(m)) part_writer().add(m);
  else if (saved) settle(directory_->checkpoints().saved(m.step, *saved));
  else if (const auto* told = m.as<messages::StateSent>()) state_sent(m, *told);
  else if (const auto* look = m.as<messages::Shown>()) shown(m, *look);
  else if (const auto* fault = m.as<messages::FaultInjected>()) fault_injected(m, *fault);
  else coordinator_->receive(m, now());
  if (const auto pid = pids_.find(m.sender); m.as<messages::Hello>() && pid != pids_.end())
    local_.introduced(pid->second);
  if (const auto* alive = m.as<messages::Alive>(); alive && report_) report_->works(m.sender, alive->work, now());
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
                     Term{.run = run_,
                          .peer = self_,
                          .endpoint = transport_->endpoint(),
                          .job = Json{{"text", text_},
                                      {"file", command_.config},
                                      {"overrides", command_.overrides},
                                      {"min_workers", command_.min_workers},
                                      {"hold", command_.hold},
                                      {"any_build", command_.any_build},
                                      {"zero", command_.arrangement.zero},
                                      {"copies", command_.arrangement.copies},
                                      {"tp", command_.arrangement.tp},
                                      {"pp", command_.arrangement.pp},
                                      {"forecasts", write_fields(command_.forecasts)},
                                      {"until", command_.until ? Json(*command_.until) : Json()},
                                      {"device", command_.device},
                                      {"threads", command_.threads},
                                      {"isa", command_.isa},
                                      {"offload", command_.offload},
                                      {"metrics_port", command_.metrics_port.value_or(-1)},
                                      {"metrics_address", command_.metrics_address}}});
  for (const std::string& notice : directory_->start().notices) say(stderr, "{}\n", notice);
  report_.emplace(command_, config_, *directory_, began_);
  run_ = directory_->run();
  records_.newest = directory_->generations().newest();
  if (records_.newest) records_.before = directory_->generations().read(records_.newest->follows);
  records_.members_alive = directory_->members_alive();
  // It may have changed since the job began.
  if (command_.takes_over && records_.newest && records_.newest->arrangement)
    command_.arrangement = *records_.newest->arrangement;
  write_json(path_ / "coordinator.json",
             {{"peer", self_}, {"endpoint", transport_->endpoint()}, {"pid", getpid()}, {"run", run_}});
}

// The first worker has built the network and knows the number of steps.
void JobProcess::open(const WorkerInfo& about) {
  const Config resolved = parse_config(about.config, "config.toml");
  if (!command_.replay.empty()) check_same_run(command_.replay, resolved, about.data);
  if (!directory_) open_directory();
  if (command_.resume) check_same_run(path_, resolved, about.data);
  about_ = about;
  const ScalingOptions scaling = {.batch = config_.adaptive() ? config_.run.batch_size : 0,
                                  .batch_max = config_.run.batch_max};
  const LedgerOptions ledger = resolved.ledger_options();
  directory_->facts().begin({.numerics = resolved.run.numerics,
                             .scaling = resolved.run.scaling,
                             .kind = resolved.fast() ? kind_of_gpu(*about.environment) : "",
                             .virtual_ranks = resolved.run.virtual_ranks,
                             .virtual_shards = resolved.virtual_shards(),
                             .config = digest(resolved),
                             .data = about.data,
                             .options = ledger},
                            {.tensors_every = ledger.tensors_every, .gradient = about.gradient, .state = about.state},
                            config_.adaptive() ? std::nullopt : std::optional(about.steps));
  if (profile_) forget_profiles(path_);
  report_->begin(about, transport_->endpoint());
  if (about.images) keep_form(path_, *about.images);
  const int64_t first = directory_->start().step;
  coordinator_.emplace(CoordinatorOptions{.run = run_,
                                          .term = directory_->term().number(),
                                          .endpoint = transport_->endpoint(),
                                          .steps = about.steps,
                                          .initial_workers = command_.workers,
                                          .min_workers = command_.min_workers,
                                          .arrangement = command_.arrangement,
                                          .forecasts = command_.forecasts,
                                          .virtual_shards = static_cast<int>(resolved.virtual_shards()),
                                          .segments = about.segments,
                                          .plan = {.vranks = config_.run.virtual_ranks},
                                          .scaling = scaling,
                                          .stuck = patience_for(most_bytes(about)),
                                          .hold = command_.hold},
                       *this, first, records_, now());
  if (!command_.chaos.empty())
    fault_injector_.emplace(
        chaos_,
        FaultInjector::World{.workers = [this] { return workers_here(coordinator_->status(now()), local_.alive()); },
                             .start_worker = [this] { start_worker(); },
                             .arrange = [this](const std::string& entries) { return arrange(entries); },
                             .event = [this](const std::string& n, const Json& f) { event(n, f); }},
        records_.newest ? directory_->facts().recorded() : -1);
  event("start", {{"step", first},
                  {"steps", about.steps},
                  {"device", about.environment->at("device")},
                  {"isa", about.environment->at("isa")},
                  {"threads", about.environment->at("threads")},
                  {"workers", command_.workers}});
  if (!about.segments.seconds.empty())
    event("segments", {{"names", *about.segments.names}, {"seconds", about.segments.seconds}});
}

void JobProcess::settle(const std::vector<CheckpointCommitter::Settled>& checkpoints) {
  for (const auto& [step, failure] : checkpoints) coordinator_->checkpoint(step, failure, now());
}

// Writes checkpoint parts for workers that cannot reach the run directory.
PartWriter& JobProcess::part_writer() {
  if (!part_writer_)
    part_writer_.emplace(
        CheckpointStore(path_ / "checkpoints"),
        [this](PeerId worker, int64_t step, messages::Taken taken) {
          transport_->send(worker, packet_of({.sender = self_, .step = step, .payload = std::move(taken)}, run_));
        },
        [this] { transport_->wake(); });
  return *part_writer_;
}

// Other events than the faults that workers inject into themselves are the coordinator's own, and have other fields.
void JobProcess::fault_injected(const Message& m, const messages::FaultInjected& fault) {
  constexpr Fault::What kOfWorkers[] = {Fault::What::kill, Fault::What::drop, Fault::What::flip};
  const bool known = std::ranges::any_of(kOfWorkers, [&](Fault::What what) { return fault.event == name_of(what); });
  check(known, "expected a fault that a worker injects, got '{}'", fault.event);
  check(fault.about->is_object(), "expected an object about the fault, got {}", fault.about->type_name());
  // The end of a worker's process may be noticed before what it said last.
  const auto pid = pids_.find(m.sender);
  const bool ended = pid != pids_.end() && local_.started(pid->second);
  if (ended || coordinator_->job().workers.contains(m.sender)) event(fault.event, *fault.about);
}

// A member has sent a learner its part of the state.
void JobProcess::state_sent(const Message& m, const messages::StateSent& told) {
  if (!coordinator_->job().workers.contains(m.sender)) return;
  event("fed", {{"step", m.step},
                {"from", m.sender},
                {"peer", told.peer},
                {"part", told.part},
                {"parts", told.parts},
                {"copy_seconds", told.copy_seconds},
                {"wait_seconds", told.wait_seconds}});
}

// No decision depends on tensor summaries. A summary from a peer that may not send one, or one that is too large, is
// ignored.
void JobProcess::shown(const Message& m, const messages::Shown& look) {
  if (coordinator_->job().trains(m.sender))
    report_->shown(m.step, {reinterpret_cast<const char*>(look.summary.data), look.summary.bytes});
}

WorkerStarter JobProcess::starter() {
  return {.start = [this] { start_worker(); },
          .end = [this](int count) { local_.end_coming(count); },
          .coming = local_.coming()};
}

std::string JobProcess::arrange(const std::string& entries) {
  return elinvar::control({.command = "arrange", .name = entries}, *coordinator_, config_, starter(), {}, now()).error;
}

void JobProcess::control(const Message& m, const messages::Ctl& asked) {
  transport_->connect(m.sender, asked.endpoint);
  messages::Answer answer{.error = "the job is still starting", .starting = true};
  if (coordinator_)
    answer = elinvar::control(
        asked, *coordinator_, config_, starter(), [this] { return status(); }, now());
  send(m.sender, {.payload = std::move(answer)});
  if (coordinator_) flush();
}

Json JobProcess::status() const {
  Json status = coordinator_->status(now());
  status.update(report_->status(now()));
  return status;
}

}  // namespace elinvar
