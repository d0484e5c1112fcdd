#include "elastic/protocol/step_gradients.h"

#include <utility>

namespace elinvar {

StepGradients::StepGradients(const Options& options, const MemberPosition& position, const ScalingProgress& scaling,
                             GradientLayout& layout, StepAudit& audit, StepReduction& reduction)
    : options_(options),
      position_(position),
      scaling_(scaling),
      layout_(layout),
      audit_(audit),
      reduction_(reduction),
      computed_(options.vranks) {}

std::vector<int> StepGradients::todo() const {
  std::vector<int> todo;
  if (!position_.begun() || position_.completed > position_.steps) return todo;
  for (const Interval& interval : position_.generation->share(position_.index, position_.completed))
    for (int v = interval.begin; v < interval.end; ++v)
      if (!computed_.has(v)) todo.push_back(v);
  if (const auto audited = audit_.due_vrank(); audited && todo.empty()) todo.push_back(*audited);
  return todo;
}

bool StepGradients::owns(int vrank) const {
  return position_.active() && contains(position_.generation->share(position_.index, position_.completed), vrank);
}

void StepGradients::add(int64_t step, int vrank, RankGradient gradient, double seconds) {
  if (step != position_.completed) return;
  audit_.say_gradient(vrank, gradient);
  if (computed_.has(vrank) || !owns(vrank)) return;
  if (!computed_.is_open()) layout_.learn(gradient);
  computed_.add(vrank, std::move(gradient), seconds);
}

bool StepGradients::opens(int vrank) const {
  if (!position_.active() || position_.fenced() || position_.generation->stop || position_.members() == 1 ||
      position_.last() || !layout_.known())
    return false;
  const std::vector<int> left = todo();
  return left.size() == 1 && left[0] == vrank && owns(vrank) && !computed_.has(vrank);
}

void StepGradients::open(int64_t step, int vrank, int64_t count, const std::vector<Tensor>& batch_statistics) {
  if (step != position_.completed || !opens(vrank)) return;
  computed_.open(vrank, count, *reduction_.begin());
  for (size_t i = 0; i < batch_statistics.size(); ++i)
    put(layout_.gradients() + static_cast<int>(i), batch_statistics[i]);
}

// After a fence there is no exchange: the gradient is reduced here, and is sent with the others in the next generation.
void StepGradients::put(int tensor, Tensor value, bool passes) {
  if (!computed_.is_open()) return;
  for (const int bucket : computed_.put(tensor, std::move(value), passes))
    reduction_.contribute(bucket, computed_.roots(), computed_.count());
}

bool StepGradients::stay_on_device() const {
  const bool alone =
      position_.active() && position_.members() == 1 && !audit_.audits() && !position_.last() && !crowded_;
  return alone || reduction_.in_group();
}

bool StepGradients::move_to_cpu() {
  if (!stay_on_device() || reduction_.in_group()) return false;
  computed_.move_to(Device{});
  return crowded_ = true;
}

bool StepGradients::digest_due() const {
  const int64_t step = position_.step;
  if (audit_.on_trial() && step == position_.completed) return true;
  return step > 0 &&
         (step == position_.steps || due(step, options_.state_digest_every) || due(step, options_.checkpoint_every));
}

void StepGradients::contribute(const std::optional<Digest>& state, const StateDigests& parts,
                               std::vector<messages::StateChunks> chunks) {
  if (!position_.begun() || position_.fenced() || position_.generation->stop || !todo().empty()) return;
  const auto& proposed = position_.proposed;
  messages::TrailerPart part{.held = proposed.empty() ? position_.number() : proposed.rbegin()->first,
                             .seconds = computed_.seconds(),
                             .facts = computed_.facts(),
                             .state = state,
                             .scaling_state = scaling_.certain(),
                             .chunks = std::move(chunks)};
  std::vector<Subtree> roots;
  for (const Subtree* root : computed_.roots()) roots.push_back(*root);
  if (position_.members() == 1 && !audit_.audits()) computed_.drop_sums();
  reduction_.contribute(std::move(roots), std::move(part), parts);
}

void StepGradients::next_step() {
  computed_.clear();
  audit_.next_step();
}

}  // namespace elinvar
