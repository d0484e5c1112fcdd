#include "elastic/protocol/step_gradients.h"

#include <iterator>
#include <utility>

#include "tensor/base/check.h"

namespace elinvar {

StepGradients::StepGradients(const Options& options, const MemberPosition& position, const ScalingProgress& scaling,
                             GradientLayout& layout, const ModelReplica& replica, StepAudit& audit,
                             StepReduction& reduction)
    : options_(options),
      position_(position),
      scaling_(scaling),
      layout_(layout),
      replica_(replica),
      audit_(audit),
      reduction_(reduction),
      computed_(options.vranks) {}

std::vector<int> StepGradients::todo() const {
  std::vector<int> todo;
  if (!position_.begun() || position_.completed > position_.steps) return todo;
  if (position_.fenced() && reduction_.keeps_none()) return todo;
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
  if (!together(vrank)) audit_.say_gradient(vrank, gradient);
  if (!counts(vrank)) return;
  if (position_.fenced() && reduction_.keeps_none()) return;
  if (!computed_.is_open()) layout_.learn(gradient);
  // A stage has no gradients after those of its segments, or only batch statistics.
  if (replica_.divided() && (!gradient.gradients.empty() || !gradient.batch_statistics.empty()))
    gradient.gradients.resize(static_cast<size_t>(layout_.gradients()));
  if (by_rank()) {
    computed_.record(vrank, gradient.facts, seconds);
    return pass_on(vrank, std::move(gradient));
  }
  if (replica_.divided() && !computed_.is_open()) keep_contributed(gradient);
  computed_.add(vrank, std::move(gradient), seconds);
}

// Drops the tensors that other members of the model replica contribute.
void StepGradients::keep_contributed(RankGradient& gradient) const {
  const Contributions& contributions = reduction_.contributions();
  int tensor = 0;
  for (std::vector<Tensor>* tensors : {&gradient.gradients, &gradient.batch_statistics})
    for (Tensor& t : *tensors)
      if (!contributions.contributes_to(tensor++)) t = Tensor();
}

const Buckets& StepGradients::begin() {
  if (!reduction_.begun()) reduction_.begin();
  return *layout_.buckets();
}

// Contributes a rank gradient that came whole.
void StepGradients::pass_on(int vrank, RankGradient gradient) {
  const Buckets& buckets = begin();
  std::vector<Tensor> values = std::move(gradient.gradients);
  std::move(gradient.batch_statistics.begin(), gradient.batch_statistics.end(), std::back_inserter(values));
  for (int b = 0; b < buckets.count(); ++b)
    if (reduction_.contributions().contributes(b))
      reduction_.contribute(b, vrank, values.empty() ? values : buckets.cut(b, values), gradient.facts.count);
}

void StepGradients::close(int64_t step, int vrank, RankGradient gradient, double seconds) {
  if (step != position_.completed) return;
  if (!together(vrank)) audit_.say_gradient(vrank, gradient);
  if (!passing_ || passing_->vrank() != vrank) return;
  invariant(passing_->complete(reduction_.contributions().absent_buckets), "all tensors of the rank gradient were put");
  passing_.reset();
  computed_.record(vrank, std::move(gradient.facts), seconds);
}

void StepGradients::complete(int64_t step, int vrank, RankFacts facts, const std::optional<Digest>& digest) {
  if (step != position_.completed || !computed_.has(vrank)) return;
  computed_.amend(vrank, std::move(facts));
  if (digest) audit_.say_together(vrank, *digest);
}

bool StepGradients::opens(int vrank) const {
  if (!position_.active() || position_.fenced() || position_.generation->stop || position_.members() == 1 ||
      position_.last() || !layout_.known())
    return false;
  if (by_rank()) return position_.begun() && counts(vrank);
  const std::vector<int> left = todo();
  return left.size() == 1 && left[0] == vrank && counts(vrank);
}

void StepGradients::open(int64_t step, int vrank, int64_t count, const std::vector<Tensor>& batch_statistics) {
  if (step != position_.completed || !opens(vrank)) return;
  if (by_rank()) passing_.emplace(vrank, count, begin());
  else {
    const Buckets& buckets = *reduction_.begin();
    computed_.open(vrank, count, buckets, reduction_.contributions().absent_tensors());
  }
  for (size_t i = 0; i < batch_statistics.size(); ++i)
    if (batch_statistics[i].defined()) put(layout_.gradients() + static_cast<int>(i), batch_statistics[i]);
}

// After a fence there is no exchange: the gradient is reduced here, and is sent with the others in the next generation.
void StepGradients::put(int tensor, Tensor value, bool passes) {
  if (passing_) {
    for (const auto& [bucket, slices] : passing_->put(tensor, std::move(value)))
      reduction_.contribute(bucket, passing_->vrank(), slices, passing_->count());
    return;
  }
  if (!computed_.is_open() || !reduction_.contributions().contributes_to(tensor)) return;
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
                             .attached = attached_,
                             .state = state,
                             .scaling_state = scaling_.certain(),
                             .chunks = std::move(chunks)};
  std::vector<Subtree> roots;
  for (const Subtree* root : computed_.roots()) roots.push_back(*root);
  if (position_.members() == 1 && !audit_.audits()) computed_.drop_sums();
  reduction_.contribute(std::move(roots), std::move(part), parts);
}

void StepGradients::fence() {
  if (!reduction_.keeps_none()) return;
  passing_.reset();
  computed_.clear();
  attached_.clear();
}

void StepGradients::next_step() {
  passing_.reset();
  computed_.clear();
  attached_.clear();
  audit_.next_step();
}

}  // namespace elinvar
