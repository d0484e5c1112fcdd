// The simulator: values between the stages of a pipeline that go through a group of GPUs, as in
// elastic/session/stage_transfers.cpp.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/elastic/simulator/simulation.h"

namespace elinvar {

void Simulation::begin_transfers(Process& p, const std::vector<int>& vranks) {
  p.together->transfers =
      SimulatedTransfers{.group = p.member->groups().agreed(), .all = p.member->stage_exchange().transfers(vranks)};
}

// Announces what the pass gives, and is to transfer it. A virtual rank without samples has announcements alone.
void Simulation::give(Process& p, std::optional<uint64_t> value, int64_t random) {
  SimulatedTransfers& t = *p.together->transfers;
  const auto place = std::ranges::find(t.all, p.together->pass, &StageExchange::Transfer::pass);
  if (place == t.all.end()) return;
  t.until = static_cast<size_t>(place - t.all.begin()) + 1;
  if (place->to.empty()) return;
  const auto& [vrank, run, backward] = p.together->pass;
  messages::BoundaryValue told{
      .vrank = vrank, .run = run, .backward = backward, .shape = {0}, .dtype = DType::u8, .random = random};
  if (value) {
    told.shape = {sizeof(*value)};
    t.given[SimulatedTransfers::key(place->pass)] =
        tensor_of(blob_of(std::string(reinterpret_cast<const char*>(&*value), sizeof(*value))));
  }
  p.member->stage_exchange().send(std::move(told));
}

std::optional<messages::BoundaryValue> Simulation::taken_input(Process& p) {
  SimulatedTransfers& t = *p.together->transfers;
  const auto& [vrank, run, backward] = p.together->pass;
  const PipelinePass given{vrank, backward ? run + 1 : run - 1, backward};
  const auto place = std::ranges::find(t.all, given, &StageExchange::Transfer::pass);
  t.until = std::max(t.until, static_cast<size_t>(place - t.all.begin()) + 1);
  if (!make_transfers(p)) return std::nullopt;
  return std::move(t.arrived.extract(SimulatedTransfers::key(given)).mapped());
}

// Makes the transfers that come first. Returns false while one of them is awaited.
bool Simulation::make_transfers(Process& p) {
  SimulatedTransfers& t = *p.together->transfers;
  for (; t.made < t.until; ++t.made) {
    const auto& [pass, to, from] = t.all[t.made];
    if (t.under_way) {
      std::string why;
      const GpuGroup::State state = t.group->complete(why);
      if (state == GpuGroup::State::pending && now_ > p.group_since + kTransferred) why = "a value has not come";
      if (!why.empty()) p.member->groups().stalled(why);
      if (state != GpuGroup::State::done) {
        flush(p);
        if (state == GpuGroup::State::pending) look_again(p);
        return false;
      }
      t.under_way = false;
      ++result_.passed_in_group;
      if (t.announced) t.announced->elements = {blob_of(t.arriving)};
    } else {
      std::vector<GroupTensor> sends, receives;
      const Tensor nothing = Tensor::zeros({0});
      if (from >= 0) {
        const PipelinePass taker{pass.vrank, pass.backward ? pass.run - 1 : pass.run + 1, pass.backward};
        t.announced = p.member->stage_exchange().take(taker, [](const Shape&, DType) { return true; });
        if (!t.announced) return false;
        if (t.announced->shape.numel() > 0) {
          receives.push_back({t.arriving = Tensor::zeros({2}), from});
          sends.push_back({nothing, from});
        }
      } else if (auto given = t.given.extract(SimulatedTransfers::key(pass))) {
        for (const int member : to) {
          sends.push_back({given.mapped(), member});
          receives.push_back({nothing, member});
        }
      }
      if (!sends.empty()) {
        goes(p);
        t.group->transfer(sends, receives);
        t.under_way = true;
        p.group_since = now_;
        look_again(p);
        return false;
      }
    }
    if (t.announced) t.arrived[SimulatedTransfers::key(pass)] = *std::exchange(t.announced, std::nullopt);
  }
  return true;
}

}  // namespace elinvar
