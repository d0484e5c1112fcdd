// `train run`: the process of the coordinator. It never trains: it starts workers, keeps the run directory, and shows
// a person how the run goes (elastic/PROTOCOL.md).
#include <sys/utsname.h>
#include <unistd.h>

#include <bit>
#include <csignal>
#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "comm/endpoint.h"
#include "comm/zmq_transport.h"
#include "elastic/coordinator.h"
#include "elastic/goodput.h"
#include "elastic/part_writer.h"
#include "elastic/run_directory.h"
#include "tensor/check.h"
#include "tensor/file.h"
#include "tensor/numerics.h"
#include "tools/config/config.h"
#include "tools/train/commands.h"
#include "tools/train/interrupt.h"
#include "tools/train/local_workers.h"
#include "tools/train/metrics.h"
#include "tools/train/progress.h"
#include "tools/train/saboteur.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Clock = Transport::Clock;

constexpr int kMostTurnedAway = 100;  // that events.jsonl tells of: strangers shall not fill the disk
constexpr int kMostStarts = 10;
constexpr Seconds kFirstWords = 3;    // for workers that are said to be alive, to introduce themselves
constexpr Seconds kLastWords = 0.05;  // what a process sent before its end may still be on its way
constexpr size_t kEventsShown = 8;    // by `train ctl status`
constexpr Seconds kFirstWorker = 30;  // to introduce itself, where others should be alive
constexpr Seconds kBeat = 0.5;        // between two counts that show others that this process lives

uint64_t random_id() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32 | device()) | 2;
}

// Bytes that are no UTF-8, as file names may hold, are written as replacement characters.
void write_json(const fs::path& path, const nlohmann::ordered_json& json) {
  replace_file(path, json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

// A resumed run must be the one that was started, on the same data.
void check_same_run(const fs::path& directory, const Config& config, const std::string& data) {
  if (!fs::exists(directory / "config.toml")) return;
  std::string changes;
  for (const std::string& change : differences(read_config(directory / "config.toml"), config))
    changes += "\n  " + change;
  check(changes.empty(),
        "{} was started with another configuration; resume with the same, or choose another --run-dir:{}",
        directory.string(), changes);
  if (!fs::exists(directory / "environment.json")) return;
  const auto environment = Json::parse(read_file(directory / "environment.json"), nullptr, /*allow_exceptions=*/false);
  if (environment.is_object() && environment.contains("data"))
    check(environment["data"] == data, "the data are not those that {} was started with; choose another --run-dir",
          directory.string());
}

class JobProcess final : public CoordinatorWorld {
 public:
  explicit JobProcess(const RunCommand& command)
      : command_(command),
        config_(command.text.empty() ? read_config(command.config, command.overrides)
                                     : parse_config(command.text, command.config, command.overrides)),
        text_(command.text.empty() ? read_file(command.config) : command.text),
        chaos_(command.chaos.empty() ? Chaos() : parse_chaos(command.chaos)),
        path_(command.run_dir.empty() ? fs::path("runs") / config_.run.name : fs::path(command.run_dir)) {
    std::optional<JobKey> key;
    if (!command.key.empty()) key = JobKey::load(command.key);
    transport_ = make_zmq_transport({.listen = command.listen, .advertise = command.advertise, .key = key});
    if (fs::exists(path_ / "ledger.jsonl") || fs::exists(path_ / "coordinators")) open_directory();
  }

  int run() {
    const Interrupt interrupt([this] { transport_->wake(); });
    const EndOfChild child([this] { transport_->wake(); });
    if (!directory_ || !directory_->members_alive()) start_workers();
    try {
      while (true) {
        const Arrival arrival = transport_->wait(Clock::now() + patience());
        if (!still_in_charge()) return step_down();
        if (arrival.what == Arrival::What::message) receive(arrival.message);
        if (arrival.what == Arrival::What::refused) turned_away(arrival.reason);
        if (arrival.what == Arrival::What::lost) losses_.push_back({now(), arrival.peer, arrival.reason});
        for (const LocalWorkers::Ended& ended : local_.ended())
          losses_.push_back({now(), peer_of(ended.pid), ended.text()});
        // What it still said comes first.
        while (!losses_.empty() && now() > losses_.front().time + kLastWords) {
          worker_lost(losses_.front());
          losses_.pop_front();
        }
        if (interrupt.requested() && !interrupted_) {
          interrupted_ = true;
          if (!coordinator_) fail("interrupted before the first step");
          coordinator_->ask_stop("interrupted", now());
        }
        if (!coordinator_ && directory_ && directory_->members_died()) start_without_members();
        if (!coordinator_ && local_.alive().empty() && now() > began_ + kFirstWorker)
          fail("no worker has introduced itself within {:g} s", kFirstWorker);
        if (needs_workers()) start_workers();
        if (coordinator_) {
          if (part_writer_)
            for (const Message& saved : part_writer_->finished()) committed(directory_->saved(saved));
          coordinator_->tick(now());
          flush();
          if (coordinator_->ending()) return finish();
        }
      }
    } catch (const std::exception& failure) {
      saboteur_.reset();
      if (directory_ && !directory_->tenure().newest()) return step_down();
      for (const auto& [peer, pid] : pids_) release(peer, failure.what());
      wait_for_workers();
      write_failure(failure.what());
      throw;
    }
  }

  // --- CoordinatorWorld
  bool create(const Generation& generation) override { return directory_->generations().create(generation); }

  bool superseded() override { return !directory_->tenure().newest(); }

  int64_t restart() override {
    directory_->choose_checkpoint();
    return directory_->first_step();
  }

  std::optional<int64_t> facts(int64_t step, const Json& facts) override {
    if (superseded()) return std::nullopt;
    const int64_t before = directory_->recorded(), on_file = directory_->facts(step, facts);
    if (superseded()) return std::nullopt;
    for (int64_t made = before + 1; made <= directory_->recorded(); ++made) {
      note({Moment::What::step, made});
      if (due(made, config_.run.checkpoint_every)) note({Moment::What::checkpoint, made});
    }
    committed(directory_->commit_saved());
    const Json& extra = facts.at("extra");
    if (extra.contains("validation") && metrics_->last_validation() < step) {
      const Json& v = extra["validation"];
      const Score score{v.at("loss").get<double>(), v.at("accuracy").get<double>(), v.at("samples").get<int64_t>()};
      metrics_->validation(step, score);
      progress_->line(fmt::format("validation step={} loss={:.6g} accuracy={:.4f} samples={}", step, score.loss,
                                  score.accuracy, score.samples));
    }
    if (step < steps_ && step == reported_) {
      ++reported_;
      if (extra.contains("validation")) goodput_.note(Goodput::Cause::evaluating);
      if (due(step, config_.run.checkpoint_every)) goodput_.note(Goodput::Cause::checkpointing);
      const int64_t generation = coordinator_->generation()->number;
      goodput_.step(now(), generation);
      loss_ = std::bit_cast<double>(facts.at("loss").get<uint64_t>());
      const int64_t count = facts.at("count").get<int64_t>(), samples = facts.at("samples").get<int64_t>();
      const double lr = extra.at("lr").get<double>();
      progress_->step(step + 1, loss_, lr, tokens_ ? count : samples);
      metrics_->step(step + 1,
                     {.loss = loss_,
                      .accuracy = static_cast<double>(facts.at("correct").get<int64_t>()) / static_cast<double>(count),
                      .lr = lr,
                      .gradient_norm = extra.at("gradient_norm").get<double>(),
                      .items_per_second = progress_->items_per_second(),
                      .tokens = tokens_,
                      .reduce_seconds = facts.at("reduce_seconds").get<double>(),
                      .workers = static_cast<int>(facts.at("seconds").size()),
                      .generation = generation,
                      .goodput = goodput_.share(now())});
    }
    return on_file;
  }

  void event(const std::string& name, const Json& fields) override {
    if (name == "fence") goodput_.note(Goodput::Cause::recovering);
    if (name == "hold") goodput_.note(Goodput::Cause::holding);
    if (name == "hello" || name == "ready" || name == "switched") goodput_.note(Goodput::Cause::changing);
    events_.push_back(directory_->events().write(name, nlohmann::ordered_json(fields)));
    if (events_.size() > kEventsShown) events_.pop_front();
    if (name == "hello") note({Moment::What::newcomer, ++newcomers_});
    if (name == "fence" || name == "generation") note({Moment::What::generation, fields.at("number").get<int64_t>()});
    if (name == "generation") note({Moment::What::step, directory_->recorded()});
  }

  // A stopped or hung process of this machine would keep its memory.
  void put_out(PeerId peer) override {
    const auto pid = pids_.find(peer);
    if (pid != pids_.end() && local_.alive().contains(pid->second)) ::kill(pid->second, SIGKILL);
  }

  std::string refuse(const Json& about) override {
    if (about.at("config") != about_.at("config")) return "its configuration is another one";
    if (about.at("data") != about_.at("data")) return "its data are others";
    if (about.at("numerics_version") != kNumericsVersion) return "its numerics are of another version";
    if (about.at("protocol") != kProtocolVersion) return "it speaks another version of the protocol";
    return "";
  }

 private:
  struct Loss {
    Seconds time;
    PeerId peer;
    std::string reason;
  };
  // How long nothing need be looked at if nothing comes.
  std::chrono::milliseconds patience() const {
    const bool soon =
        !losses_.empty() || saboteur_ || (coordinator_ && coordinator_->phase() != Coordinator::Phase::running);
    return std::chrono::milliseconds(soon ? 25 : 250);
  }
  static Seconds now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

  // Those that were said to be alive have left, or nobody has lived to take part in the first generation.
  bool needs_workers() {
    if (command_.workers == 0 || !local_.alive().empty()) return false;
    if (!coordinator_) return starts_ == 0 && now() > began_ + kFirstWords;
    if (coordinator_->phase() != Coordinator::Phase::starting) return false;
    return starts_ == 0 || coordinator_->workers() == 0;
  }

  void start_workers() {
    if (++starts_ > kMostStarts) fail("no worker lives long enough to begin");
    for (int i = 0; i < command_.workers; ++i) start_worker();
  }

  void start_worker() {
    // It listens as the job does, but in a place of its own.
    ++started_;
    Endpoint listen = parse_endpoint(command_.listen);
    if (listen.scheme == "tcp") listen.port = 0;
    else listen.place += fmt::format(".{}.{}", getpid(), started_);
    std::vector<std::string> arguments = {
        "join",      transport_->endpoint(),           "--local",  "--isa",          command_.isa,
        "--threads", std::to_string(command_.threads), "--listen", to_string(listen)};
    if (!command_.advertise.empty()) arguments.insert(arguments.end(), {"--advertise", command_.advertise});
    if (!command_.key.empty()) arguments.insert(arguments.end(), {"--key", command_.key});
    local_.start(arguments);
  }

  // Who was at work when this process looked, and should have gone on, has died since.
  void start_without_members() {
    fmt::print(stderr, "they are gone; {}\n", directory_->notices().empty() ? "" : directory_->notices().back());
    start_workers();
  }

  void send(PeerId peer, Message message) {
    message.run = run_;
    message.sender = self_;
    if (message.generation == 0 && coordinator_ && coordinator_->generation())
      message.generation = coordinator_->generation()->number;
    transport_->send(peer, std::move(message));
  }

  void flush() {
    for (Action& action : coordinator_->take_actions()) {
      if (action.what == Action::What::connect) transport_->connect(action.peer, action.endpoint);
      if (action.what == Action::What::disconnect) transport_->disconnect(action.peer);
      if (action.what == Action::What::send) send(action.peer, std::move(action.message));
    }
    if (saboteur_ && !coordinator_->ending()) saboteur_->act();
  }

  void note(const Moment& moment) {
    if (saboteur_) saboteur_->note(moment);
  }

  void turned_away(const std::string& reason) {
    if (directory_ && ++turned_away_ <= kMostTurnedAway) event("turned_away", {{"reason", reason}});
  }

  // Whoever sends what makes no sense is out: it is of no use to the others, and no reason for them to stop.
  void receive(const Message& m) {
    if (m.kind != "ask" && m.kind != "ctl" && m.run != run_) return;
    if (m.kind == "failed") {
      const std::string reason = m.body.value("reason", "a worker failed");
      check(m.body.value("exit_code", 3) != 2, "{}", reason);
      fail("{}", reason);
    }
    if (m.kind == "hello" && !coordinator_) open(m.body);
    std::string malformed;
    try {
      take(m);
    } catch (const Json::exception& error) {
      malformed = error.what();
    } catch (const UsageError& error) {
      malformed = error.what();
    }
    if (malformed.empty()) return;
    turned_away(fmt::format("a malformed '{}': {}", m.kind, malformed));
    if (!coordinator_) return;
    coordinator_->lost(m.sender, fmt::format("sent a malformed '{}'", m.kind), now());
    flush();
  }

  void take(const Message& m) {
    if (m.kind == "ask") {
      transport_->connect(m.sender, m.body.at("endpoint").get<std::string>());
      pids_[m.sender] = m.body.at("pid").get<pid_t>();
      send(m.sender, {.kind = "job",
                      .body = {{"text", text_},
                               {"file", command_.config},
                               {"overrides", command_.overrides},
                               {"directory", fs::absolute(path_).string()},
                               {"tenure", directory_ ? directory_->tenure().number() : 1},
                               {"endpoint", transport_->endpoint()}}});
      return;
    }
    if (m.kind == "ctl") return control(m);
    if (!coordinator_) return;
    if (PartWriter::takes(m)) part_writer().add(m);
    else if (m.kind == "saved") committed(directory_->saved(m));
    else if (m.kind == "fed") fed(m);
    else coordinator_->receive(m, now());
    flush();
  }

  void open_directory() {
    directory_.emplace(RunDirectoryOptions{.path = path_,
                                           .state_digest_every = config_.run.state_digest_every,
                                           .checkpoint_every = config_.run.checkpoint_every,
                                           .keep = config_.run.keep,
                                           .resume = command_.resume,
                                           .takes_over = command_.takes_over},
                       Tenure{.run = run_,
                              .peer = self_,
                              .endpoint = transport_->endpoint(),
                              .job = {{"text", text_},
                                      {"file", command_.config},
                                      {"overrides", command_.overrides},
                                      {"min_workers", command_.min_workers},
                                      {"threads", command_.threads},
                                      {"isa", command_.isa}}});
    for (const std::string& notice : directory_->notices()) fmt::print(stderr, "{}\n", notice);
    run_ = directory_->run();
    records_.newest = directory_->generations().newest();
    if (records_.newest) records_.before = directory_->generations().read(records_.newest->follows);
    records_.members_alive = directory_->members_alive();
    write_json(path_ / "coordinator.json",
               {{"peer", self_}, {"endpoint", transport_->endpoint()}, {"pid", getpid()}, {"run", run_}});
  }

  // The first worker has built the network and knows how many steps there are.
  void open(const Json& about) {
    const Config resolved = parse_config(about.at("config").get<std::string>(), "config.toml");
    if (!directory_) open_directory();
    if (command_.resume) check_same_run(path_, resolved, about.at("data").get<std::string>());
    about_ = about;
    steps_ = about.at("steps").get<int64_t>();
    tokens_ = about.at("tokens").get<bool>();
    directory_->set_steps(steps_);
    replace_file(path_ / "config.toml", to_toml(resolved));
    nlohmann::ordered_json environment(about.at("environment"));
    environment["command"] = command_.command_line;
    environment["data"] = about.at("data");
    write_json(path_ / "environment.json", environment);
    fs::remove(path_ / "result.json");  // of an earlier part of the run: from here on it would be wrong

    const int64_t first = directory_->first_step();
    reported_ = directory_->members_alive() ? directory_->recorded() : first;
    metrics_.emplace(path_, reported_);
    loss_ = metrics_->last_loss();
    fmt::print("run {} in {}: {} parameters, {} samples, {} steps of {} over {} virtual ranks\n", config_.run.name,
               path_.string(), about.at("parameters").get<int64_t>(), about.at("samples").get<int64_t>(), steps_,
               config_.run.batch_size, config_.run.virtual_ranks);
    fmt::print("numerics={} scaling={} isa={} threads={} seed={} workers={} endpoint={}\n", config_.run.numerics,
               config_.run.scaling, environment["isa"].get<std::string>(), environment["threads"].get<int>(),
               config_.run.seed, command_.workers, transport_->endpoint());
    std::fflush(stdout);
    progress_.emplace(first, steps_, config_.run.log_every, tokens_ ? "tokens" : "samples");
    coordinator_.emplace(CoordinatorOptions{.run = run_,
                                            .tenure = directory_->tenure().number(),
                                            .endpoint = transport_->endpoint(),
                                            .steps = steps_,
                                            .initial_workers = command_.workers,
                                            .min_workers = command_.min_workers,
                                            .plan = {.vranks = config_.run.virtual_ranks}},
                         *this, first, records_, now());
    if (!command_.chaos.empty())
      saboteur_.emplace(chaos_,
                        Saboteur::World{.workers = [this] { return workers_here(); },
                                        .start_worker = [this] { start_worker(); },
                                        .event = [this](const std::string& n, const Json& f) { event(n, f); }},
                        records_.newest ? directory_->recorded() : -1);
    event("start", {{"step", first},
                    {"isa", environment["isa"]},
                    {"threads", environment["threads"]},
                    {"workers", command_.workers}});
  }

  // Members first, the leader before the others; then newcomers.
  std::vector<Saboteur::Worker> workers_here() const {
    utsname system{};
    uname(&system);
    std::vector<Saboteur::Worker> workers;
    std::set<pid_t> unknown = local_.alive();
    const Json status = coordinator_->status(now());
    for (const Json& worker : status.at("workers")) {
      const Json& about = worker.at("about");
      if (about.at("environment").value("host", "") != system.nodename) continue;
      workers.push_back({.pid = about.at("pid").get<pid_t>(),
                         .id = worker.at("id").get<int>(),
                         .member = worker.at("state") == "member"});
      unknown.erase(workers.back().pid);
    }
    std::sort(workers.begin(), workers.end(), [](const auto& a, const auto& b) {
      return std::tuple(!a.member, a.id, a.pid) < std::tuple(!b.member, b.id, b.pid);
    });
    for (const pid_t pid : unknown) workers.push_back({.pid = pid});
    return workers;
  }

  void committed(const std::vector<int64_t>& steps) {
    for (const int64_t step : steps) coordinator_->checkpoint_committed(step, now());
  }

  // For workers that do not see the run directory.
  PartWriter& part_writer() {
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
  void fed(const Message& m) {
    Json fields = m.body;
    fields["step"] = m.step;
    fields["from"] = m.sender;
    event("fed", fields);
  }

  PeerId peer_of(pid_t local) const {
    for (const auto& [peer, pid] : pids_)
      if (pid == local) return peer;
    return 0;
  }

  void worker_lost(const Loss& loss) {
    if (coordinator_) coordinator_->lost(loss.peer, loss.reason, now());
    else if (local_.alive().empty()) fail("no worker could start: {}", loss.reason);
  }

  void control(const Message& m) {
    transport_->connect(m.sender, m.body.at("endpoint").get<std::string>());
    Json answer = Json::object();
    const std::string what = m.body.value("command", "");
    if (!coordinator_) {
      answer["error"] = "the job is still starting";
    } else if (what == "status") {
      answer = status();
    } else if (what == "drain") {
      const std::string error = coordinator_->drain(m.body.value("worker", 0), now());
      if (!error.empty()) answer["error"] = error;
    } else if (what == "checkpoint") {
      coordinator_->ask_checkpoint(now());
    } else if (what == "stop") {
      coordinator_->ask_stop("stopped by train ctl", now());
    } else if (what == "scale") {
      answer = scale(m.body.value("workers", 0));
    } else {
      answer["error"] = "unknown command";
    }
    send(m.sender, {.kind = "answer", .body = answer});
    if (coordinator_) flush();
  }

  Json status() const {
    Json status = coordinator_->status(now());
    status["run"] = config_.run.name;
    status["directory"] = fs::absolute(path_).string();
    status["loss"] = loss_;
    status["rate"] = progress_->items_per_second();
    status["unit"] = progress_->unit();
    status["seconds_left"] = progress_->seconds_left();
    status["goodput"] = goodput_.summary(now());
    status["events"] = events_;
    return status;
  }

  // So many workers, started here or drained, the newest first.
  Json scale(int wanted) {
    if (wanted < 1) return {{"error", "at least one worker"}};
    std::vector<int> ids;
    if (coordinator_->generation())
      for (const GenerationMember& m : coordinator_->generation()->members) ids.push_back(m.id);
    for (int n = static_cast<int>(coordinator_->workers()); n < wanted; ++n) start_worker();
    std::sort(ids.begin(), ids.end());
    for (size_t n = ids.size(); n > static_cast<size_t>(wanted); --n) coordinator_->drain(ids[n - 1], now());
    return Json::object();
  }

  // Counts, so that nobody takes over; false if somebody has.
  bool still_in_charge() {
    if (!directory_ || now() < beat_ + kBeat) return true;
    beat_ = now();
    directory_->tenure().beat();
    return directory_->tenure().newest();
  }

  // The workers belong to another coordinator now, and so do the files.
  int step_down() {
    progress_.reset();
    const std::optional<Tenure> other = newest_tenure(path_);
    fmt::print(stderr, "train: the coordinator at {} has taken over {}; this one steps down\n",
               other ? other->endpoint : "?", path_.string());
    return 3;
  }

  void release(PeerId peer, const std::string& reason) {
    send(peer, {.kind = "release", .body = {{"what", "failed"}, {"reason", reason}}});
  }

  // Those that come only now are told that there is nothing left to do.
  void wait_for_workers() {
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    while (!local_.alive().empty() && Clock::now() < deadline) {
      const Arrival arrival = transport_->wait(Clock::now() + std::chrono::milliseconds(5));
      const Message& m = arrival.message;
      const bool newcomer = arrival.what == Arrival::What::message && (m.kind == "ask" || m.kind == "hello");
      if (newcomer && m.body.contains("endpoint") && m.body["endpoint"].is_string()) {
        transport_->connect(m.sender, m.body["endpoint"].get<std::string>());
        send(m.sender, {.kind = "refused", .body = {{"reason", "the run has ended"}}});
      }
      (void)local_.ended();
    }
    local_.kill_all();
  }

  int finish() {
    const Coordinator::Ending ending = *coordinator_->ending();
    if (ending.what == "superseded") return step_down();
    progress_.reset();
    saboteur_.reset();
    wait_for_workers();
    goodput_.finish(now());
    if (ending.what == "failed") fail("{}", ending.reason);
    const bool finished = ending.what == "finished";
    directory_->sync();
    const int64_t step = finished ? steps_ : coordinator_->generation()->first_step;
    const std::optional<Digest> state = directory_->state(step);
    nlohmann::ordered_json result = {
        {"status", finished ? "finished" : "interrupted"}, {"step", step}, {"steps", steps_}};
    result["loss"] = loss_;
    result["digest"] = state ? state->hex() : "";
    result["goodput"] = goodput_.summary(now());
    event(finished ? "finished" : "interrupted",
          {{"step", step}, {"state", result["digest"]}, {"goodput", result["goodput"]}});
    write_json(path_ / "result.json", result);
    if (!finished) {
      fmt::print(stderr,
                 "stopped after step {} of {}, with a checkpoint; go on with\n  train run {} --run-dir {} --resume\n",
                 step, steps_, command_.config, path_.string());
      return 0;
    }
    fmt::print("final step={} loss={:g} digest={}\n", step, loss_, result["digest"].get<std::string>());
    return 0;
  }

  // The failure is what counts; that it also could not be written down (a full disk) adds nothing.
  void write_failure(const std::string& reason) {
    if (!coordinator_) return;
    try {
      event("failed", {{"step", reported_}, {"reason", reason}});
      write_json(path_ / "result.json",
                 {{"status", "failed"}, {"step", reported_}, {"steps", steps_}, {"reason", reason}});
    } catch (const std::exception&) {
    }
  }

  RunCommand command_;
  Config config_;
  std::string text_;  // of its file: so that errors that workers find name its lines
  Chaos chaos_;
  fs::path path_;
  std::optional<RunDirectory> directory_;  // from the first worker's hello on: what cannot start leaves nothing
  Coordinator::Records records_;
  uint64_t run_ = random_id();
  PeerId self_ = random_id();
  std::unique_ptr<Transport> transport_;
  LocalWorkers local_;
  std::deque<Loss> losses_;
  std::map<PeerId, pid_t> pids_;
  Json about_;
  int64_t steps_ = 0, reported_ = 0, newcomers_ = 0;
  int starts_ = 0, started_ = 0, turned_away_ = 0;
  bool tokens_ = false, interrupted_ = false;
  Seconds beat_ = 0, began_ = now();
  double loss_ = 0;
  Goodput goodput_{now()};                     // of this process's part of the run
  std::deque<nlohmann::ordered_json> events_;  // the last ones
  std::optional<Metrics> metrics_;
  std::optional<Progress> progress_;
  std::optional<Coordinator> coordinator_;
  std::optional<Saboteur> saboteur_;
  std::optional<PartWriter> part_writer_;
};

}  // namespace

int run(const RunCommand& command) { return JobProcess(command).run(); }

int coordinate(const CoordinateCommand& command) {
  const std::optional<Tenure> gone = newest_tenure(command.run_dir);
  check(gone && gone->number == command.tenure, "{} has no coordinator of tenure {} to take over from", command.run_dir,
        command.tenure);
  RunCommand go_on;
  go_on.config = gone->job.at("file").get<std::string>();
  go_on.run_dir = command.run_dir;
  go_on.resume = true;
  go_on.takes_over = command.tenure;
  go_on.text = gone->job.at("text").get<std::string>();
  go_on.overrides = gone->job.at("overrides").get<std::vector<std::string>>();
  go_on.min_workers = gone->job.at("min_workers").get<int>();
  go_on.workers = 0;
  go_on.threads = gone->job.at("threads").get<int>();
  go_on.isa = gone->job.at("isa").get<std::string>();
  go_on.command_line = command.command_line;
  go_on.listen = command.listen;
  go_on.advertise = command.advertise;
  go_on.key = command.key;
  return run(go_on);
}

}  // namespace elinvar
