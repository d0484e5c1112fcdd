#pragma once
// The implementation of the simulator (tests/elastic/simulator/elastic_simulator.h): one simulated job, with its parts
// in separate files.
#include <fmt/format.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <stdexcept>

#include "elastic/protocol/coordinator.h"
#include "elastic/protocol/member.h"
#include "elastic/session/watch.h"
#include "tests/elastic/simulator/elastic_reference.h"
#include "tests/elastic/simulator/elastic_simulator.h"
#include "tests/elastic/simulator/simulated_passes.h"

namespace elinvar {

class Simulation {
 public:
  explicit Simulation(const Schedule& schedule);

  SimulationResult run();

 private:
  static constexpr double kFaultsEnd = 8, kDeadline = 200;
  static constexpr double kHeartbeat = 0.6, kTick = 0.05, kBeat = 0.4;
  static constexpr double kTransferred = 2.5;  // the longest time of a transfer in a group, in seconds
  static constexpr WatchOptions kWatch{.silence = 1.2, .takeover = 1, .apart = 0.3, .hold = 8};

  static constexpr int64_t kBucketElements = 2, kCheckpointEvery = 3, kDigestEvery = 2;
  static constexpr int kSegments = 4;           // of the network
  static constexpr const char* kForm = "form";  // among the digests of a state: the form in which its sender holds it

  // The target of the next damage, which happens once; `always` damages each audited rank gradient.
  enum class Flip { none, gradient, sum, state, always };

  // The kinds of messages between workers of which the next one is lost: any, a contribution of an open rank gradient,
  // values of shards, an input of a pass, digests, or a request for parameters or its answer.
  enum class Lost { any, open, values, input, digests, parameters };

  struct Event {
    double time;
    int64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const { return std::tie(other.time, other.order) < std::tie(time, order); }
  };

  struct Node {
    PeerId peer = 0;
    bool alive = true;
    bool far = false;          // on the other side of a network that is cut in two
    double stalled_until = 0;  // a stopped process does nothing until then
    double cut_until = 0;      // messages to and from it are delayed until then
    virtual ~Node() = default;
  };

  // The members of one GPU communicator and their transfers (simulation_groups.cpp).
  class Communicator;
  struct Piece {
    GpuPiece piece;
    Communicator* of;
  };
  struct Room {
    std::string name;
    std::vector<PeerId> members;  // 0: not arrived yet
    std::set<PeerId> formed;
    std::map<std::pair<int, int>, std::deque<Piece>> sends, receives;  // by sender and receiver
  };
  // A worker's thread that forms groups (elastic/session/group_former.h).
  struct Former {
    struct Formed {
      std::shared_ptr<GpuGroup> group;
      std::shared_ptr<Room> room;
    };
    std::map<int64_t, Formed> formed;  // by generation
    int64_t oldest = 0, forming = 0;
    int64_t attempt = 0;  // work of earlier attempts has been given up
  };

  struct Process : Node {
    std::unique_ptr<Member> member;
    std::optional<NcclSupport> nccl;  // its NCCL support; null: it is not a GPU
    Former former;
    bool polls = false;  // it polls its group
    double group_since = -1;
    int64_t group_progress = 0;  // the group's progress at `group_since`
    std::optional<Watch> watch;  // set once it has introduced itself to a coordinator
    bool sees_directory = true;
    // Its state, and the stage of ZeRO with which it holds it. From the first one on only the slots that it keeps are
    // those of the run, and in the third one its parameters as well.
    TinyState tiny = {};
    uint64_t state = tiny.digest();
    int zero = 0;
    HeldForm form() const { return form_of(zero); }
    // Unless it holds the whole state: the buckets that it keeps, or else it has those of a checkpoint.
    std::set<int> kept = {};
    bool holds_all = false;
    // With ZeRO: an update that waits for sums, if it is not `made`, or for values.
    struct Updating {
      Reduced reduced;
      double lr_factor;
      StepFacts facts;
      bool gave_sums = false, made = false;
      // The transfer of parameters in a group of GPUs, if there is one: the group, and the parameters that come, by
      // bucket.
      std::shared_ptr<GpuGroup> group = {};
      std::map<int, Tensor> arriving = {};
      bool transferred = false;
    };
    std::optional<Updating> updating = {};
    std::optional<Message> saved;  // its report on the last checkpoint
    size_t history = 0;            // index in references_
    bool left = false;
    bool busy = false;  // it is computing, after which the loop goes on by itself
    bool hung = false;  // the computation never ends, though heartbeats go on
    double busy_since = 0, idle_since = 0;
    bool open = false;  // it is putting a rank gradient tensor by tensor
    std::set<Lost> loses = {};
    using Together = RankGradientsTogether;
    std::optional<Together> together = {};
    using Residence = SegmentResidence;
    std::optional<Residence> residence = {};
    Flip flip = Flip::none;
    bool damaged = false;    // a bit has flipped
    bool corrupt = false;    // its state has a flipped bit
    int64_t corrupt_in = 0;  // the generation in which it flipped while the worker computed a rank gradient
    bool replays = false;    // it is rebuilding its state in a replay
    double gradient_seconds = 0.05;
  };

  struct Checkpoint {
    int parts = 0;
    std::map<int, uint64_t> states;        // the state of each part
    std::set<HeldForm> forms;              // in which the workers hold the state
    std::map<int, std::set<int>> buckets;  // with ZeRO: the parts that each bucket is in
    bool attested = false;                 // each worker reports the whole state too
  };

  // A coordinator's process; anything not written to the directory dies with it.
  struct Head final : Node, CoordinatorWorld {
    explicit Head(Simulation& simulation) : sim(simulation) {}
    Simulation& sim;
    int64_t term = 0;
    int asked = 0;  // number of workers that asked for the job
    std::unique_ptr<Coordinator> coordinator;
    double beat_at = 0;
    double fenced_at = -1;  // since when members are fenced; -1: they are not
    std::map<int64_t, std::string> waiting;
    std::map<int64_t, uint64_t> states;  // states that members agreed on
    std::map<std::pair<int64_t, int64_t>, Checkpoint> saving;

    bool create(const Generation& g) override { return sim.create(g); }
    bool superseded() override { return sim.heads_.rbegin()->first > term; }
    std::optional<int64_t> facts(const std::vector<StepFacts>& steps) override { return sim.facts(*this, steps); }
    int64_t restart() override { return sim.saved_step_; }
    int64_t newest_checkpoint(int64_t most) override {
      if (sim.saved_step_ <= most) return sim.saved_step_;
      if (!superseded()) sim.violate("a checkpoint of step {} at step {}", sim.saved_step_, most);
      return 0;
    }
    Recorded begin_history() override {
      waiting.clear();
      saving.clear();
      states = sim.states_;
      return sim.recorded();
    }
    void evict(PeerId out) override { sim.evict(out); }
    void event(const std::string& name, const nlohmann::json& fields) override;
    std::string refuse(const messages::Hello&) override { return ""; }
  };

  template <class... Args>
  [[noreturn]] void violate(fmt::format_string<Args...> text, Args&&... args) const {
    throw std::runtime_error(fmt::format(text, std::forward<Args>(args)...));
  }
  void log(const std::string& text) {
    if (result_.log.size() < 5000) result_.log.push_back(fmt::format("{:8.3f} {}", now_, text));
  }
  double uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  void at(double time, std::function<void()> what) { events_.push({std::max(time, now_), order_++, std::move(what)}); }
  std::string where();

  // The network (simulation_network.cpp): delivers in order between two processes, with a random delay for each
  // message.
  Node* node(PeerId peer);
  void send(PeerId from, PeerId to, Message message);
  void deliver(PeerId to, const Message& message, double sent);
  void act(PeerId self, std::vector<Action> actions);
  void die(Node& dead, const std::string& how);
  void lose(PeerId watcher, PeerId peer);

  // Coordinators and the run directory (simulation_coordinators.cpp).
  Head* head();
  void start_coordinator();
  void tick(Head& h);
  void beat(Head& h);
  void receive(Head& h, const Message& message);
  void flush(Head& h);
  bool create(const Generation& g);
  std::optional<int64_t> facts(Head& h, const std::vector<StepFacts>& steps);
  void take_facts(Head& h, const StepFacts& facts);
  void evict(PeerId peer);
  void checkpoint_part(Head& h, const Message& m, const messages::Saved& saved);
  std::optional<bool> is_good(const Head& h, int64_t step, const Checkpoint& c) const;
  void settle(Head& h);

  // Adaptive scaling (simulation_scaling.cpp). Steps after the ledger's end may be made differently if the run
  // continues without the workers that made them. A worker that has not heard of this is still in the previous history.
  const Reference& reference(const Process& p) const { return *references_[p.history]; }
  uint64_t state_after(const Process& p, int64_t step) const;
  void begin_history(const Generation& generation);
  CoordinatorWorld::Recorded recorded() const;
  void agree(const Process& p, int64_t step, const ScalingState& scaling_state);
  RankGradient any_gradient(uint64_t state, int number) const;

  // The workers' processes, and their main thread: the training loop (simulation_workers.cpp).
  void add_worker();
  void join(PeerId peer);
  void follow(Process& p, int64_t term);
  void introduce(Process& p, int64_t term);
  bool sees_directory(const Process& p) const;
  void heartbeat(PeerId peer);
  void seek(Process& p);
  void flush(Process& p);
  void deliver_part(PeerId peer, PeerId to, double delay, const Message& m);
  void later(Process& p, double delay, std::function<void(Process&)> what);
  void advance(Process& p);
  void learn_layout(Process& p);
  void compute_alone(Process& p, int vrank, const StepGradients::Begun& begun);
  void put(Process& p, const PuttingGradient& putting, size_t left);
  void put_one(Process& p, const PuttingGradient& putting, size_t left);
  void update(Process& p);
  void load(Process& p);

  // Model replicas: what a member computes with others of a rank gradient, and the passes of which it consists
  // (simulation_replicas.cpp, simulation_stages.cpp).
  bool divided() const { return most_.replica() > 1; }
  int virtual_shards() const { return most_.tp > 1 || (most_.pp > 1 && s_.seed % 2 == 0) ? s_.shards : 1; }
  ShardOptions sharding(int zero) const;
  void cut_gradients();
  RankGradient in_tensors(RankGradient gradient) const;
  bool has(const ReplicaPlace& place, int tensor) const;
  void keep_own(RankGradient& gradient, const ReplicaPlace& place) const;
  void check_places(const Generation& g);
  void begin_together(Process& p);
  void begin_rank(Process& p, int vrank);
  Process::Together::Rank& begin_pass(Process& p, int vrank);
  void go_on(Process& p);
  void go_on_in_segments(Process& p);
  void put_next(Process& p);
  void exchange(Process& p);
  bool go_on_together(Process& p);
  void give_up(Process& p);
  void finish_rank(Process& p);
  messages::ShardValues values_of_shards(Process& p);
  void check_values(Process& p, const std::map<int, messages::ShardValues>& others);
  void mislead(Process& p);
  bool is_damaged(const Process& p) const;
  bool has_samples(const Process& p, int64_t step, int vrank, const ScalingState& scaling_state) const;
  void computes_its_part(const Process& p, int vrank);
  // Digests, and data attached to facts (simulation_digests.cpp).
  bool named(int64_t step, int vrank) const { return parts_ && (step + vrank) % 4 == 0; }
  void share_digests(Process& p, int vrank, const RankGradient& gradient);
  bool take_digests(Process& p);
  JsonValue attached(uint64_t state, int64_t step, int vrank) const;
  void check_facts(const Process& p, int64_t step, const Reduced& reduced);
  // Passes.
  void begin_passes(Process& p);
  bool next_pass(Process& p);
  void take_input(Process& p);
  bool is_input_taken(Process& p);
  void end_pass(Process& p);
  void finish_pass(Process& p);
  void check_input(Process& p, const messages::BoundaryValue& input);
  // Transfers between stages through a group (simulation_transfers.cpp).
  void begin_transfers(Process& p, const std::vector<int>& vranks);
  bool make_transfers(Process& p);
  std::optional<messages::BoundaryValue> taken_input(Process& p);
  void give(Process& p, std::optional<uint64_t> value, int64_t random);
  void kill_ahead(Process& p);
  uint64_t boundary(const Process& p, int vrank, int segment, bool backward) const;

  // Sharded state of the optimizer (simulation_shards.cpp).
  bool keeps(const Process& p, int bucket) const;
  void change_shards(Process& p);
  void update_shards(Process& p);
  uint32_t sum_of_gradients(const Process& p) const;
  void take_values(Process& p);
  std::vector<Blob> values_of(const Process& p, int bucket) const;
  void give_wanted(Process& p);
  void move_shards(Process& p, const StatePart& part);
  void check_slots(const Process& p, const std::vector<int>& buckets, int64_t step) const;
  void check_form(const Process& p) const;
  std::vector<int> all_buckets() const;
  size_t element_of(const Slice& slice) const;
  size_t element_of(int bucket) const { return element_of(buckets_.slices(bucket)[0]); }

  // Sharded parameters (simulation_parameters.cpp).
  bool has_parameter(const Process& p, int bucket) const;
  uint64_t digest_of_state(const Process& p, int64_t step) const;
  uint32_t right_parameter(const Process& p, int bucket, int64_t step) const;
  std::vector<int> read_by(const Process& p, int segment) const;
  void begin_segments(Process& p, bool scores);
  void begin_segments_together(Process& p);
  size_t segments_before(const Process& p) const;
  void enter_segments(Process& p, size_t entered, std::function<void(Process&)> then);
  void enter(Process& p);
  void repeat(Process& p);
  std::optional<Blob> take_from_others(Process& p, int bucket);
  bool take_parameter(Process& p, int bucket);
  bool hold(Process& p, int segment);
  void drop(Process& p, int segment);
  void step_is_over(Process& p);
  void kill_provider(Process& p, int bucket);
  void give_parameters(Process& p);

  // Other arrangements (simulation_arrangements.cpp).
  Arrangement any_arrangement(Arrangement from);
  Arrangement described();
  void rearrange();
  void count_changes(const Generation& g);
  void check_sharding(const Generation& g) const;

  // Groups of GPUs (simulation_groups.cpp).
  void equip(Process& p);
  void serve_groups(Process& p);
  void form(Process& p, const GroupRequest& request);
  void come(Process& p, int64_t attempt, const GroupRequest& request, const std::string& name);
  void formed(Process& p, const GroupRequest& request, const std::shared_ptr<Room>& room);
  void not_formed(Process& p, const GroupRequest& request, const std::string& reason);
  void let_go(Former::Formed&& over);
  void beside(PeerId peer, int64_t attempt, double delay, std::function<void(Process&)> what);
  void wait_for_group(Process& p);
  void look_again(Process& p);
  void exchange_in_group(Process& p, std::shared_ptr<GpuGroup> group);
  std::optional<std::map<int, messages::ShardValues>> values_in_group(Process& p);
  bool transfer_parameters(Process& p);
  void goes(Process& p);
  void transfers(const Process& p, const Room& room);
  void used_group(const std::string& made);

  // Flips and audits (simulation_flips.cpp).
  void arm();
  void damaged(Process& p, const char* what, int64_t step);
  bool may_last(const Process& p) const;
  bool is_the_last_right(const Process& p) const;
  uint32_t next_damage() const;
  bool computes_audited(const Process& p, int64_t step, int vrank) const;
  bool audits_itself(const Process& p, int64_t step) const;
  RankGradient compute(Process& p, int64_t step, int vrank, const ScalingState& scaling_state, bool together = false);
  void flip_state(Process& p, int64_t step);
  void spoil(Process& p, int64_t step, int bucket, std::vector<Tensor>& sums);
  bool hides_damage(const Process& p) const;
  void end_what_lasts(Process& p);
  void judged(const nlohmann::json& found);
  void replay(Process& p);

  // Faults (simulation_fate.cpp).
  template <class Nodes>
  Node* any_of(const Nodes& nodes) {
    std::vector<Node*> alive;
    for (const auto& [key, n] : nodes)
      if (n->alive) alive.push_back(n.get());
    return alive.empty() ? nullptr : alive[static_cast<size_t>(pick(static_cast<int>(alive.size())))];
  }
  void stall(Node& n, double seconds);
  void hang(Process& p);
  void partition(double seconds);
  void kill_beside(Process& p);
  Lost lost();
  void fault();
  bool faulty() const { return now_ < kFaultsEnd; }
  void resume();
  void orphan();
  void look_after();
  void mend();

  Schedule s_;
  std::mt19937_64 random_;
  Arrangement begins_with_;  // the job, when a person starts or resumes it
  Arrangement most_;         // of each entry the most that the job may have
  ScalingOptions scaling_;
  AuditOptions audit_;
  std::vector<std::unique_ptr<Reference>> references_;  // the last one follows the ledger
  std::map<int64_t, size_t> histories_;                 // by the number in records
  // The tensors of gradients, their buckets, and with model replicas the part of the network of each (GradientLayout).
  std::vector<Shape> shapes_ = {{3}, {2}};
  std::optional<TensorParts> parts_;  // if there may be tensor or pipeline parallelism, or ZeRO-3
  SegmentCosts segments_;             // if there may be pipeline parallelism
  // By generation, step and virtual rank: the segments and shards of which a member has finished the rank gradient.
  std::map<std::tuple<int64_t, int64_t, int>, std::set<std::pair<int, int>>> computed_parts_;
  Buckets buckets_;
  SimulationResult result_;
  double now_ = 0;
  int64_t order_ = 0;
  bool done_ = false;
  std::priority_queue<Event> events_;

  PeerId next_peer_ = 1;
  std::map<PeerId, std::unique_ptr<Process>> workers_;
  std::set<std::pair<PeerId, PeerId>> connected_;
  std::map<std::pair<PeerId, PeerId>, double> last_arrival_, broken_;
  double whole_from_ = 0;  // the network is cut in two until then
  int directory_cut_ = 0;  // side that sees the directory during a cut; 0: both, 1: the near one, 2: the far one
  bool kills_beside_open_ = false;
  std::map<std::string, std::shared_ptr<Room>> rooms_;
  // By generation and step: whether it is made with the generation's group, and whether that adds up gradients.
  std::map<std::pair<int64_t, int64_t>, std::pair<bool, bool>> planes_;
  // by generation and step: the room of the group that made it
  std::map<std::pair<int64_t, int64_t>, const Room*> transferred_by_;
  int64_t named_ = 0;  // number of named groups
  std::string wrong_in_group_;

  // The run directory.
  std::map<int64_t, std::unique_ptr<Head>> heads_;  // by term
  std::map<int64_t, int64_t> beats_;
  std::map<int64_t, Generation> records_;
  std::vector<std::string> ledger_;
  std::map<int64_t, uint64_t> states_;  // in the ledger
  int64_t saved_step_ = 0;
};

}  // namespace elinvar
