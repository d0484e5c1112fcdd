#include "elastic/replay.h"

namespace elinvar {
namespace {

constexpr PeerId kNobody = 1;

// One that is never last, nor saves anything.
MemberOptions alone(const MemberOptions& options, int64_t to) {
  return {.self = options.self,
          .endpoint = options.endpoint,
          .vranks = options.vranks,
          .steps = to + 1,
          .bucket_elements = options.bucket_elements};
}

}  // namespace

Replay::Replay(const MemberOptions& options, const Member::Replay& steps)
    : member_(alone(options, steps.step)), to_(steps.step) {
  const std::vector<Interval> all = {{0, options.vranks}};
  const Generation generation{
      .number = 1,
      .first_step = steps.from,
      .members = {{.id = 1, .peer = options.self, .endpoint = options.endpoint, .share = all, .first_share = all}},
      .reason = "a replay"};
  member_.introduce(kNobody, nlohmann::json::object());
  member_.receive({.kind = "welcome", .sender = kNobody, .body = {{"restore", steps.from}}});
  const Member::Load load = member_.take_load();
  member_.loaded(load);
  member_.receive({.kind = "start",
                   .sender = kNobody,
                   .generation = 1,
                   .body = {{"record", to_json(generation)}, {"completed", nlohmann::json::object()}}});
}

void Replay::advance() {
  const int64_t step = member_.step();
  member_.advance(nlohmann::json::object());
  member_.receive({.kind = "ack", .sender = kNobody, .step = step});  // it need remember nothing
  (void)member_.take_actions();
}

}  // namespace elinvar
