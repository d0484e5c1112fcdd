// A worker's process. It receives the job's description from the coordinator and trains (tools/training/loop.h).
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "comm/endpoint.h"
#include "comm/zmq_transport.h"
#include "elastic/run/run_directory.h"
#include "elastic/run/term.h"
#include "elastic/session/session.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tensor/base/reason.h"
#include "tensor/base/threads.h"
#include "tensor/isa.h"
#include "tensor/numerics.h"
#include "tools/cli/standard_streams.h"
#include "tools/training/elastic_job.h"
#include "tools/training/environment.h"
#include "tools/training/interrupt.h"
#include "tools/training/job_endpoint.h"
#include "tools/training/kept_form.h"
#include "tools/training/loop.h"
#include "tools/training/profile_report.h"
#include "tools/training/program.h"
#include "tools/training/remake.h"
#include "tools/training/parameter_shards.h"
#include "tools/training/sharded_state.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr PeerId kUnknownCoordinator = 1;  // the coordinator's id, before it has introduced itself
constexpr int kMostRejoins = 3;
// The shortest time without contact after which a worker leaves: long enough for a takeover.
constexpr Seconds kLeastHold = 15;
constexpr std::chrono::seconds kBeforeReturning{1};

PeerId random_peer() {
  std::random_device device;
  return (static_cast<PeerId>(device()) << 32 | device()) | 2;
}

// The job as its coordinator describes it.
struct JobReply {
  uint64_t run = 0;
  PeerId coordinator = 0;
  messages::JobDescription job = {};
};

JobReply ask(Transport& transport, PeerId self, const std::string& endpoint) {
  transport.connect(kUnknownCoordinator, job_endpoint(endpoint));
  const messages::Ask question{.endpoint = transport.endpoint(), .pid = getpid(), .protocol = kProtocolVersion};
  transport.send(kUnknownCoordinator, packet_of({.sender = self, .payload = question}, /*run=*/0));
  const auto deadline = Transport::Clock::now() + std::chrono::seconds(30);
  while (true) {
    const Arrival arrival = transport.wait(deadline);
    if (arrival.what == Arrival::What::lost) fail("cannot reach a job at {}: {}", endpoint, arrival.reason);
    if (arrival.what == Arrival::What::timeout) fail("no job answers at {} within 30 s", endpoint);
    if (arrival.what != Arrival::What::message) continue;
    const Packet& packet = arrival.packet;
    // A job with another protocol version may answer with fields that this version does not know.
    check(packet.kind != messages::JobDescription::kKind.name || packet.body.contains("arrival"),
          "the job at {} speaks an older version of the protocol than this program ({}): take the program of the job",
          endpoint, kProtocolVersion);
    const Message message = message_of(packet);
    if (const auto* job = message.as<messages::JobDescription>()) return {packet.run, packet.sender, *job};
    if (const auto* refused = message.as<messages::Refused>())
      fail("{} refuses this worker: {}", endpoint, refused->reason);
  }
}

// Returns the run's current coordinator, as recorded in its directory.
std::optional<SessionOptions::RecordedCoordinator> coordinator_of(const fs::path& directory) {
  if (directory.empty()) return std::nullopt;
  const std::optional<Term> term = newest_term(directory);
  if (!term) return std::nullopt;
  const std::optional<Generation> generation = GenerationStore(directory).newest();
  return SessionOptions::RecordedCoordinator{
      .observation = {.term = term->number,
                      .beats = beats_of(directory, term->number),
                      .members = generation ? static_cast<int>(generation->members.size()) : 0},
      .coordinator = term->peer,
      .endpoint = term->endpoint};
}

// A failed run may continue with another coordinator.
bool is_over(const fs::path& directory) {
  if (directory.empty()) return false;
  const std::optional<Json> result = result_of(directory);
  return result && result->value("status", Json()) != "failed";
}

// Starts a coordinator in place of the one of this term. It listens where this worker listens.
void start_coordinator(const WorkerOptions& command, const fs::path& directory, int64_t term) {
  if (!command.start_coordinator) return;
  Endpoint listen = parse_endpoint(command.listen);
  if (listen.scheme == "tcp") listen.port = 0;
  else listen.place += fmt::format(".coordinator-{}", term + 1);
  while (::waitpid(-1, nullptr, WNOHANG) >
         0) {  // reaps earlier coordinators that failed; a worker has no other children
  }
  command.start_coordinator({.run_dir = directory.string(),
                             .term = term,
                             .listen = to_string(listen),
                             .advertise = command.advertise,
                             .key = command.key});
}

// Finds the NCCL with which this worker can join a group of GPUs, if the configuration allows groups.
FoundNccl nccl_for(const Config& config, Device device) {
  if (config.run.data_plane == "host") return {.why_not = "run.data_plane is \"host\""};
  FoundNccl found = find_nccl(device);
  with_places(config.places, [&] {
    check_setting(found.nccl || config.run.data_plane == "auto", "run.data_plane",
                  "= \"nccl\", but this worker cannot: {}; \"auto\" would go through the hosts", found.why_not);
  });
  return found;
}

NcclSupport support_of(const FoundNccl& found) {
  if (!found.nccl) return {.why_not = found.why_not};
  return {
      .why_not = "", .version = found.nccl->version(), .place = found.nccl->place(), .shrinks = found.nccl->shrinks()};
}

// Returns the proof that a worker of another build sends before it is admitted: it repeats the run's first updates in a
// training of its own and returns their gradients. Empty if the job has no updates yet or its first weights cannot be
// read.
std::vector<Digest> repeated(const WorkerOptions& command, const messages::JobDescription& job, const Config& config,
                             const fs::path& directory, const Offload& offload) {
  std::vector<Digest> gradients;
  const bool other = !job.build.empty() && job.build != build_id();
  if (job.repeat == 0 || !other || (job.imported && directory.empty())) return gradients;
  Training training(config, parse_device(command.device), /*zero=*/0, offload);
  if (job.imported) training.setup.load(CheckpointStore(directory / "checkpoints").read(0).state);
  for (const LedgerLine& line : make_first_updates(training, job.repeat)) gradients.push_back(line.gradient);
  return gradients;
}

// The end of this worker's part in the job.
struct Part {
  int exit_code = 0;
  std::string returns_to = {};  // the job's endpoint if this worker was evicted and may come back; else empty
};

Part work(const WorkerOptions& command, Transport& transport, PeerId self, const JobReply& reply,
          std::unique_ptr<Transport>& owned) {
  const messages::JobDescription& about_job = reply.job;
  const bool imported = about_job.imported;
  std::vector<std::string> overrides = about_job.overrides;
  overrides.insert(overrides.end(), command.overrides.begin(), command.overrides.end());
  std::optional<Profiler> profiler;  // outlives all threads that it may watch
  const Device device = parse_device(command.device);
  Training training(parse_config(about_job.text, about_job.file, overrides), device, about_job.zero,
                    parse_offload(command.offload, device));
  TrainingSetup& setup = training.setup;
  const Config& config = training.config();
  const std::shared_ptr<const Dataset> validation = open_split(config, Split::validation);

  // The run directory, if this host sees the same one. A coordinator that writes to it is known to be alive.
  auto see = [path = fs::path(command.run_dir.empty() ? about_job.directory : command.run_dir), run = reply.run,
              alive = std::optional<File>(), mutex = std::make_unique<std::mutex>()]() mutable -> fs::path {
    const std::lock_guard lock(*mutex);
    if (!alive) {
      const std::optional<Term> there = newest_term(path);
      if (!there || there->run != run) return {};
      alive.emplace(worker_lock(path));
    }
    return path;
  };
  const auto directory = std::make_shared<decltype(see)>(std::move(see));

  const FoundNccl found = nccl_for(config, setup.device);
  nlohmann::ordered_json environment = describe_environment(command.command_line, setup.device, config.fast());
  if (command.offload != "none") environment["offload"] = command.offload;
  if (found.nccl) environment["nccl"] = found.nccl->version();
  std::vector<std::string> notices = setup.data->take_notices(), others = validation->take_notices();
  notices.insert(notices.end(), others.begin(), others.end());

  const Arrangement arrangement{.zero = about_job.zero, .tp = about_job.tp, .pp = about_job.pp};
  ShardedState shards(setup);
  ParameterShards parameters(setup, shards, /*average=*/false), averages(setup, shards, /*average=*/true);
  shards.use(parameters, averages);
  if (arrangement.pp > 1) training.measure_segments(arrangement);
  MemberOptions member = training.member(arrangement);
  member.self = self;
  member.endpoint = transport.endpoint();
  if (about_job.facts_at_once) member.report_every = 1;
  std::vector<TensorLayout> gradient;
  for (const Parameter& p : setup.network->parameters.list)
    gradient.push_back(layout_of(p.name, Tensor::absent(p.var.grad_shape(), p.var.dtype())));
  const SessionOptions options{
      .member = member,
      .ledger = config.ledger_options(),
      .run = reply.run,
      .coordinator = reply.coordinator,
      .coordinator_endpoint = about_job.endpoint,
      .term = about_job.term,
      .imported = imported,
      .about = {.endpoint = transport.endpoint(),
                .pid = getpid(),
                .name = command.name,
                .config = to_toml(config),
                .data = digest(*setup.data),
                .steps = training.steps,
                .parameters = setup.network->parameters.count(),
                .samples = setup.data->size(),
                .zero = about_job.zero,
                .segments = training.segment_costs(),
                .gradient = std::move(gradient),
                .tokens = setup.data->vocabulary() != nullptr,
                .accuracy = setup.task->has_accuracy(),
                .images = image_form(*setup.data),
                .notices = std::move(notices),
                .numerics_version = kNumericsVersion,
                .protocol = kProtocolVersion,
                .nccl = support_of(found),
                .repeated = repeated(command, about_job, config, (*directory)(), setup.offload),
                .environment = nlohmann::json(environment)},
      .directory = [directory] { return (*directory)(); },
      .warm_up =
          [&](int64_t step, int vrank) {
            const int64_t of_epoch = step % training.loader.steps_per_epoch();
            training.touch(training.loader.cursor(of_epoch));
            const Batch batch = training.loader.batch(of_epoch, vrank);
            if (about_job.pp > 1) return training.shapes_of_gradient();  // each segment has run
            if (about_job.tp == 1) return training.rank_gradient(batch, step, vrank);
            const auto cut = static_cast<int>(config.virtual_shards());
            return training.partial_gradient(batch, step, vrank, {0, (cut - 1) / about_job.tp + 1});
          },
      .look =
          [directory] {
            const fs::path path = (*directory)();
            if (is_over(path)) fail("the run is over");
            return coordinator_of(path);
          },
      .faults = about_job.chaos.empty() ? std::vector<Fault>() : parse_chaos(about_job.chaos).faults,
      .device = device,
      .nccl = found.nccl,
      .group_patience = std::chrono::duration<double>(config.run.group_timeout),
      .take_over = [&](int64_t term) { start_coordinator(command, (*directory)(), term); },
      .watch = {.hold = std::max(about_job.hold, kLeastHold), .arrival = static_cast<int>(about_job.arrival)}};
  Session session(options, std::move(owned),
                  {.view = [&] { return setup.state(); },
                   .restore = [&](int64_t step, int zero) -> std::optional<ScalingState> {
                     const fs::path path = (*directory)();
                     if (step == 0 && !imported) {
                       shards.restored(zero, std::nullopt);
                       setup.load(TrainingSetup(setup.config, Split::train, {}, zero, setup.offload).state());
                       return ScalingState{};
                     }
                     if (path.empty()) return std::nullopt;
                     const CheckpointStore checkpoints(path / "checkpoints");
                     if (zero == 0) {
                       const Checkpoint checkpoint = checkpoints.read(step);
                       setup.hold(zero);
                       setup.load(checkpoint.state);
                       return scaling_state_of(checkpoint.state);
                     }
                     CheckpointReader checkpoint = checkpoints.open(step);
                     checkpoint.verify_state();
                     shards.restored(zero, std::nullopt);
                     std::vector<std::string> names = {"step", kScalingState};
                     if (!setup.values) names.push_back("model.");
                     for (const auto& [name, tensor] : setup.state())
                       if (setup.values || !name.starts_with("model.")) names.push_back(name);
                     const std::vector<std::string_view> prefixes(names.begin(), names.end());
                     const StateDict whole = checkpoint.read(prefixes);
                     setup.load(whole);
                     shards.restored(zero, std::move(checkpoint));
                     return scaling_state_of(whole);
                   },
                   .shards = member.sharding ? std::optional(shards.access()) : std::nullopt});
  if (!command.profile.empty()) {
    const auto save = [&](const nlohmann::ordered_json& trace, int worker) {
      const fs::path seen = (*directory)();
      if (!seen.empty()) return write_profile(profile_path(seen, worker), trace);
      const fs::path here = fmt::format("worker-{}.json", worker);
      write_profile(here, trace);
      say(stderr, "the profile of this worker is {}; it belongs into the folder profile of the run directory\n",
          fs::absolute(here).string());
    };
    profiler.emplace(within(parse_profile_window(command.profile, 0), training.steps), setup.device, save);
  }
  parameters.use(session);
  averages.use(session);
  try {
    // A signal asks the session to leave at the next boundary; the loop notices when it has left.
    const Interrupt leave([&] { session.drain(); });
    train(training, validation, session, profiler ? &*profiler : nullptr);
    if (profiler) profiler->finish();
  } catch (const std::exception& failure) {
    session.fail(reason_of(failure), dynamic_cast<const UsageError*>(&failure) ? 2 : 3);
    throw;
  }
  const Member::Outcome& outcome = session.outcome();
  const bool good = outcome.what == "finished" || outcome.what == "stopped" || outcome.what == "left";
  if (!command.local || outcome.what == "alone")
    say(stderr, "{}{}{}\n", outcome.what, outcome.reason.empty() ? "" : ": ", outcome.reason);
  Part part{good ? 0 : 3};
  const fs::path path = (*directory)();
  if (!outcome.again || is_over(path)) return part;
  const std::optional<SessionOptions::RecordedCoordinator> there = coordinator_of(path);
  part.returns_to = there ? there->endpoint : command.endpoint;
  return part;
}

Part take_part(const WorkerOptions& command) {
  const PeerId self = random_peer();
  std::optional<JobKey> key;
  if (!command.key.empty()) key = JobKey::load(command.key);
  std::unique_ptr<Transport> transport =
      make_zmq_transport({.listen = command.listen, .advertise = command.advertise, .key = key});
  Transport& wire = *transport;
  JobReply reply;
  try {
    reply = ask(wire, self, command.endpoint);
    wire.connect(reply.coordinator, reply.job.endpoint);
    wire.disconnect(kUnknownCoordinator);
    return work(command, wire, self, reply, transport);
  } catch (const std::exception& failure) {
    if (transport && reply.coordinator != 0) {  // before a session existed
      const messages::Failed failed{.reason = reason_of(failure),
                                    .exit_code = dynamic_cast<const UsageError*>(&failure) ? 2 : 3};
      wire.send(reply.coordinator, packet_of({.sender = self, .payload = failed}, reply.run));
    }
    // The coordinator reports the failure.
    if (command.local) return {dynamic_cast<const UsageError*>(&failure) ? 2 : 3};
    throw;
  }
}

}  // namespace

int join(const WorkerOptions& given) {
  pthread_setname_np(pthread_self(), "elinvar-worker");  // otherwise it shows the name of the program that started it
  WorkerOptions command = given;
  set_isa(parse_isa(command.isa));
  set_threads(command.threads > 0 ? command.threads : usable_threads());
  (void)parse_offload(command.offload, parse_device(command.device));
  // Other hosts can reach this one at the address from which its packets to the coordinator leave.
  if (command.listen.empty()) command.listen = listen_towards(job_endpoint(command.endpoint));
  if (command.advertise.empty() && is_wildcard(parse_endpoint(command.listen)))
    command.advertise = address_towards(parse_endpoint(job_endpoint(command.endpoint)));
  for (int returns = 0;; ++returns) {
    const Part part = take_part(command);
    if (part.returns_to.empty() || returns == kMostRejoins) return part.exit_code;
    command.endpoint = part.returns_to;
    say(stderr, "coming back to {} as a new worker ({} of at most {} times)\n", command.endpoint, returns + 1,
        kMostRejoins);
    std::this_thread::sleep_for(kBeforeReturning);
  }
}

}  // namespace elinvar
