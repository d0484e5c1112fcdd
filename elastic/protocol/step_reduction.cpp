#include "elastic/protocol/step_reduction.h"

#include <utility>

namespace elinvar {

StepReduction::StepReduction(Options options, const MemberPosition& position, ExchangeInbox& inbox, StepAudit& audit,
                             MemberGroups& groups)
    : options_(std::move(options)),
      position_(position),
      inbox_(inbox),
      audit_(audit),
      groups_(groups),
      leaves_(options_.vranks) {}

bool StepReduction::learn_layout(const RankGradient& leaf) {
  if (buckets_ || leaf.gradients.empty()) return false;
  std::vector<Shape> shapes;
  for (const Tensor& t : leaf.gradients) shapes.push_back(t.shape());
  for (const Tensor& t : leaf.batch_statistics) shapes.push_back(t.shape());
  gradients_ = static_cast<int>(leaf.gradients.size());
  whole_buckets_.emplace(shapes, options_.bucket_elements, /*whole=*/true);
  buckets_.emplace(std::move(shapes), options_.bucket_elements);
  return true;
}

std::vector<int> StepReduction::todo() const {
  std::vector<int> todo;
  if (!position_.begun() || position_.completed > position_.steps) return todo;
  for (const Interval& interval : position_.generation->share(position_.index, position_.completed))
    for (int v = interval.begin; v < interval.end; ++v)
      if (!leaves_.has(v)) todo.push_back(v);
  if (const auto audited = audit_.due_vrank(); audited && todo.empty()) todo.push_back(*audited);
  return todo;
}

bool StepReduction::owns(int vrank) const {
  return position_.active() && contains(position_.generation->share(position_.index, position_.completed), vrank);
}

void StepReduction::add(int64_t step, int vrank, RankGradient leaf, double seconds) {
  if (step != position_.completed) return;
  audit_.say_gradient(vrank, leaf);
  if (leaves_.has(vrank) || !owns(vrank)) return;
  if (!leaves_.is_open()) learn_layout(leaf);
  leaves_.add(vrank, std::move(leaf), seconds);
}

bool StepReduction::opens(int vrank) const {
  if (!position_.active() || position_.fenced() || position_.generation->stop || position_.members() == 1 ||
      position_.last() || !knows_layout())
    return false;
  const std::vector<int> left = todo();
  return left.size() == 1 && left[0] == vrank && owns(vrank) && !leaves_.has(vrank);
}

void StepReduction::open(int64_t step, int vrank, int64_t count, const std::vector<Tensor>& batch_statistics) {
  if (step != position_.completed || !opens(vrank)) return;
  leaves_.open(vrank, count, *begin());
  for (size_t i = 0; i < batch_statistics.size(); ++i) put(gradients_ + static_cast<int>(i), batch_statistics[i]);
}

// After a fence there is no exchange: the gradient is reduced here, and is sent with the others in the next generation.
void StepReduction::put(int gradient, Tensor value, bool passes) {
  if (!leaves_.is_open()) return;
  for (const int bucket : leaves_.put(gradient, std::move(value), passes))
    if (Exchange* exchange = inbox_.exchange())
      exchange->contribute(bucket, leaves_.roots(), leaves_.count(), inbox_.sender());
}

const Buckets* StepReduction::begin() {
  Exchange::Options options{.vranks = options_.vranks,
                            .members = position_.members(),
                            .me = position_.index,
                            .buckets = step_buckets(),
                            .gradients = gradients_,
                            .audit = audit_.sum_audit(buckets_ ? buckets_->count() : 0)};
  if (reduces_in_group()) {
    options.group = groups_.current();
    options.buckets = &*whole_buckets_;
  }
  if (options_.spoil)
    options.spoil = [this](int bucket, std::vector<Tensor>& sums) {
      options_.spoil(position_.completed, bucket, sums);
    };
  const Buckets* const buckets = options.buckets;
  inbox_.begin(Exchange(std::move(options)));
  return buckets;
}

void StepReduction::listen() {
  if (!knows_layout() || inbox_.exchange()) return;
  inbox_.begin(Exchange(
      {.vranks = options_.vranks, .members = 0, .me = -1, .buckets = step_buckets(), .gradients = gradients_}));
}

bool StepReduction::work() {
  Exchange* const exchange = inbox_.exchange();
  if (!exchange || !exchange->work(inbox_.sender())) return false;
  if (exchange->audit()) audit_.say_sums(exchange->audit()->said());
  return true;
}

void StepReduction::contribute(messages::TrailerPart part, const StateDigests& digests) {
  if (!position_.begun() || position_.fenced() || position_.generation->stop || !todo().empty()) return;
  if (!inbox_.exchange()) begin();
  if (part.state) audit_.say_state(*part.state);
  std::vector<Subtree> roots;
  for (const Subtree* root : leaves_.roots()) roots.push_back(*root);
  if (position_.members() == 1 && !audit_.audits()) leaves_.drop_sums();
  part.member = position_.index;
  part.seconds = leaves_.seconds();
  part.facts = leaves_.facts();
  part.audit = audit_.claims();
  part.group = groups_.name();
  inbox_.exchange()->contribute(std::move(roots), part, digests, inbox_.sender());
}

StepReduction::Progress StepReduction::reduce() {
  const Exchange* const exchange = inbox_.exchange();
  if (!exchange || exchange->owes()) return Progress::abandoned;
  while (work()) {
  }
  if (exchange->group() && !exchange->group()->trouble().empty()) groups_.stalled(exchange->group()->trouble());
  if (!exchange->complete()) return Progress::waiting;
  switch (audit_.judge(*exchange, buckets_ ? buckets_->count() : 0)) {
    case StepAudit::Outcome::agreed:
      return Progress::complete;
    case StepAudit::Outcome::disagreed:
      return Progress::disagreed;
    case StepAudit::Outcome::reported:
      break;
  }
  return Progress::waiting;
}

StepReduction::Result StepReduction::take() {
  Exchange& exchange = *inbox_.exchange();
  Result result{.values = exchange.values(), .trailer = exchange.trailer(), .in_group = exchange.group().has_value()};
  inbox_.end();
  return result;
}

Reduced StepReduction::reduced(const Result& result) const {
  const messages::Trailer& trailer = result.trailer;
  Reduced reduced;
  reduced.generation = position_.number();
  Hasher batches;
  double loss_sum = 0;
  for (const RankFacts& facts : trailer.facts) {
    batches.add(facts.batch);
    loss_sum += facts.loss_sum;
    reduced.count += facts.count;
    reduced.correct += facts.correct;
    reduced.samples += facts.samples;
    reduced.leaves += facts.samples > 0;
  }
  reduced.batch = batches.digest();
  reduced.loss = loss_sum / static_cast<double>(reduced.count);
  reduced.facts = trailer.facts;
  reduced.state = trailer.state;
  reduced.state_digests = trailer.state_digests;
  reduced.seconds = trailer.seconds;
  reduced.contradiction = trailer.contradiction;
  if (trailer.scaling_state) reduced.scaling_state = *trailer.scaling_state;
  reduced.gradients = result.values;
  if (!result.values.empty()) {
    reduced.batch_statistics.assign(result.values.begin() + gradients_, result.values.end());
    reduced.gradients.resize(static_cast<size_t>(gradients_));
  }
  return reduced;
}

void StepReduction::next_step() {
  leaves_.clear();
  audit_.next_step();
}

// An audited step is reduced where its inputs can be examined.
bool StepReduction::reduces_in_group() const { return groups_.agreed() && !audit_.audits() && !position_.last(); }

bool StepReduction::keeps_leaves() const {
  const bool alone =
      position_.active() && position_.members() == 1 && !audit_.audits() && !position_.last() && !crowded_;
  return alone || reduces_in_group();
}

bool StepReduction::let_leaves_go() {
  if (!keeps_leaves() || reduces_in_group()) return false;
  leaves_.move_to(Device{});
  return crowded_ = true;
}

std::string StepReduction::missing() const { return inbox_.exchange() ? inbox_.exchange()->missing() : ""; }

std::optional<int64_t> StepReduction::group_progress() const {
  const Exchange* const exchange = inbox_.exchange();
  return exchange && exchange->group() ? exchange->group()->progress() : std::nullopt;
}

}  // namespace elinvar
