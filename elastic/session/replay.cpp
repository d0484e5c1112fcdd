#include "elastic/session/replay.h"

#include "tensor/base/check.h"

namespace elinvar {
namespace {

constexpr PeerId kSelf = 2, kNobody = 1;

// Returns the options of a member that reports and saves nothing.
MemberOptions alone(MemberOptions options) {
  options.self = kSelf;
  options.checkpoint_every = options.state_digest_every = 0;
  options.audit = {};
  options.groups = false;
  options.spoil = {};
  return options;
}

}  // namespace

// Gives the member the messages that a coordinator sends its first worker.
Replay::Replay(MemberOptions options, int64_t first, const ScalingState& scaling_state,
               std::vector<GenerationScaling::Change> changes)
    : member_(alone(options)) {
  const WorkerInfo nothing;
  member_.introduce(kNobody, nothing);
  member_.receive({.sender = kNobody, .payload = messages::Welcome{.restore = first}});
  invariant(member_.next() == Member::Next::load, "a member restores what it is told to");
  StateLoad load = member_.catching_up().load();
  load.scaling_state = scaling_state;
  member_.loaded(load);

  const std::vector<Interval> all = {{0, options.vranks}};
  Generation generation{.number = 1,
                        .first_step = first,
                        .members = {{.id = 1, .peer = kSelf, .endpoint = {}, .share = all, .first_share = all}},
                        .reason = "a replay"};
  if (options.scaling.batch > 0)
    generation.scaling = GenerationScaling{.base_workers = 1, .history = 1, .recorded = std::move(changes)};
  member_.receive({.sender = kNobody, .generation = 1, .payload = messages::Start{.record = generation}});
}

void Replay::advance() {
  const int64_t step = member_.position().step;
  member_.advance({});
  // Confirms the step's facts, so that the member need not keep them.
  member_.receive({.sender = kNobody, .step = step, .payload = messages::Ack{}});
  (void)member_.outbox().take();
  (void)member_.transfers().take_parts();
}

}  // namespace elinvar
