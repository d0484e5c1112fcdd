#include "elastic/protocol/step_reduction.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "tensor/numerics.h"
#include "tensor/ops/digest.h"

namespace elinvar {
namespace {

// Returns the result as the loop sees it. The first `gradients` values are gradients, the others batch statistics.
Reduced reduced_of(const messages::Trailer& trailer, const std::vector<Tensor>& values, int gradients,
                   int64_t generation) {
  Reduced reduced;
  reduced.generation = generation;
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
  reduced.gradients = values;
  if (!values.empty()) {
    reduced.batch_statistics.assign(values.begin() + gradients, values.end());
    reduced.gradients.resize(static_cast<size_t>(gradients));
  }
  return reduced;
}

template <class T>
void append(std::vector<T>& to, const Blob& blob) {
  const size_t before = to.size();
  to.resize(before + blob.bytes / sizeof(T));
  std::memcpy(to.data() + before, blob.data, (to.size() - before) * sizeof(T));
}

// Facts of slices, which come by bucket, in the order of the slices' elements: count(numel) of them for each slice.
template <class T, class Count>
std::vector<T> in_order(const messages::Trailer& trailer, const Buckets& buckets, Blob messages::SumFacts::*facts,
                        Count count) {
  std::map<std::pair<int, int64_t>, std::vector<T>> of_slices;
  for (const messages::SumFacts& sum : trailer.sums) {
    std::vector<T> of_bucket;
    append(of_bucket, sum.*facts);
    auto at = of_bucket.begin();
    for (const Slice& slice : buckets.slices(sum.bucket)) {
      const auto end = at + std::min(static_cast<std::ptrdiff_t>(count(slice.numel())), of_bucket.end() - at);
      of_slices[{slice.tensor, slice.begin}].assign(at, end);
      at = end;
    }
  }
  std::vector<T> all;
  for (const auto& [slice, values] : of_slices) all.insert(all.end(), values.begin(), values.end());
  return all;
}

GradientShards shards_of(const messages::Trailer& trailer, const Buckets& buckets,
                         std::map<int, std::vector<Tensor>> sums) {
  GradientShards shards;
  for (auto& [bucket, gradients] : sums) {
    const std::span<const Slice> slices = buckets.slices(bucket);
    shards.kept.push_back({.number = bucket,
                           .slices = std::vector<Slice>(slices.begin(), slices.end()),
                           .gradients = std::move(gradients)});
  }
  shards.squares = in_order<double>(trailer, buckets, &messages::SumFacts::squares, segments_of);
  shards.chunks = in_order<Digest>(trailer, buckets, &messages::SumFacts::chunks,
                                   [](int64_t n) { return digest_chunks_of(n * int64_t{sizeof(float)}); });
  return shards;
}

}  // namespace

StepReduction::StepReduction(Options options, const MemberPosition& position, const GradientLayout& layout,
                             ExchangeInbox& inbox, StepAudit& audit, MemberGroups& groups, OptimizerShards& shards,
                             const ModelReplica& replica)
    : options_(std::move(options)),
      position_(position),
      layout_(layout),
      inbox_(inbox),
      audit_(audit),
      groups_(groups),
      shards_(shards),
      replica_(replica) {}

// Returns the buckets of sparse tables that this member keeps in the generation.
std::vector<int> StepReduction::kept_tables() const {
  std::vector<int> tables;
  if (!shards_.on()) return tables;
  for (const int b : shards_.kept())
    if (layout_.of_table(b)) tables.push_back(b);
  return tables;
}

// Returns the member that adds up each bucket.
std::vector<int> StepReduction::owners() const {
  std::vector<int> owners;
  if (!layout_.known()) return owners;
  const Contributions& dealt = replica_.contributions(*layout_.buckets());
  for (int b = 0; b < layout_.bucket_count(); ++b)
    owners.push_back(shards_.on() && !layout_.of_table(b) ? shards_.keepers(b)[0] : dealt.owner(b));
  return owners;
}

const Buckets* StepReduction::begin() {
  Exchange::Options options{.vranks = options_.vranks,
                            .members = position_.members(),
                            .me = position_.index,
                            .buckets = step_buckets(),
                            .gradients = layout_.gradients(),
                            .owners = owners(),
                            .reports = replica_.reports()};
  options.audit = audit_.sum_audit(options.owners);
  if (shards_.on() && options.buckets) {
    // The places of a sparse table's gradient stand for other rows in each step.
    std::vector<int> all(static_cast<size_t>(position_.members()));
    std::iota(all.begin(), all.end(), 0);
    for (int b = 0; b < layout_.gradient_shards(); ++b)
      options.keepers.push_back(layout_.of_table(b) ? all : shards_.keepers(b));
    options.holds_back = [this] { return shards_.missing(); };
    options.by_rank = by_rank();
  }
  if (in_group()) {
    options.group = groups_.agreed();
    options.buckets = &buckets();
  }
  if (replica_.divides() && options.buckets)
    options.contributes = [&dealt = replica_.contributions(*options.buckets)](int member, int bucket) {
      return dealt.contributes(member, bucket);
    };
  if (options_.spoil)
    options.spoil = [this](int bucket, std::vector<Tensor>& sums) {
      options_.spoil(position_.completed, bucket, sums);
    };
  const Buckets* const buckets = options.buckets;
  inbox_.begin(Exchange(std::move(options)));
  return buckets;
}

void StepReduction::listen() {
  if (!layout_.known() || inbox_.exchange()) return;
  // Only keepers get these sums.
  const size_t sharded = step_buckets() && layout_.sharded() ? static_cast<size_t>(layout_.gradient_shards()) : 0;
  inbox_.begin(Exchange({.vranks = options_.vranks,
                         .members = 0,
                         .me = -1,
                         .buckets = step_buckets(),
                         .gradients = layout_.gradients(),
                         .keepers = std::vector<std::vector<int>>(sharded)}));
}

bool StepReduction::work() {
  Exchange* const exchange = inbox_.exchange();
  if (!exchange || !exchange->work(inbox_.sender())) return false;
  if (exchange->audit()) audit_.say_sums(exchange->audit()->said());
  return true;
}

void StepReduction::contribute(int bucket, const std::vector<const Subtree*>& roots, int64_t count) {
  Exchange* const exchange = inbox_.exchange();
  if (!exchange || exchange->listens() || !contributions().contributes(bucket)) return;
  exchange->contribute(bucket, roots, count, inbox_.sender());
}

void StepReduction::contribute(int bucket, int vrank, const std::vector<Tensor>& slices, int64_t count) {
  if (contributions().contributes(bucket)) inbox_.exchange()->contribute(bucket, vrank, slices, count, inbox_.sender());
}

void StepReduction::contribute(std::vector<Subtree> roots, messages::TrailerPart part, const StateDigests& digests) {
  if (!inbox_.exchange()) begin();
  if (part.state) audit_.say_state(*part.state);
  part.member = position_.index;
  part.audit = audit_.claims();
  part.group = groups_.name();
  inbox_.exchange()->contribute(std::move(roots), part, digests, inbox_.sender());
}

StepReduction::Progress StepReduction::reduce() {
  const Exchange* const exchange = inbox_.exchange();
  if (!exchange || exchange->owes()) return Progress::abandoned;
  while (work()) {
  }
  send_part();
  if (exchange->group() && !exchange->group()->trouble().empty()) groups_.stalled(exchange->group()->trouble());
  if (!exchange->complete()) return Progress::waiting;
  switch (audit_.judge(*exchange)) {
    case StepAudit::Outcome::agreed:
      return Progress::complete;
    case StepAudit::Outcome::disagreed:
      return Progress::disagreed;
    case StepAudit::Outcome::reported:
      break;
  }
  return Progress::waiting;
}

void StepReduction::send_part() {
  Exchange* const exchange = inbox_.exchange();
  if (!exchange) return;
  exchange->send_part(inbox_.sender());
  if (exchange->promised()) shards_.promise();
}

void StepReduction::fence() {
  Exchange* const exchange = inbox_.exchange();
  if (exchange && exchange->promised() && shards_.on()) {
    shards_.promise();
    retained_ = {.step = position_.completed, .sums = exchange->take_sums(), .tables = kept_tables()};
  }
  inbox_.end();
}

StepReduction::Result StepReduction::take() {
  Exchange& exchange = *inbox_.exchange();
  Result result{.values = exchange.values(), .trailer = exchange.trailer(), .in_group = exchange.group().has_value()};
  std::map<int, std::vector<Tensor>> sums = exchange.take_sums();
  result.listened = exchange.listens();
  std::vector<int> tables = result.listened ? std::vector<int>() : kept_tables();
  if (exchange.promised()) shards_.promise();
  if (result.listened && retained_ && retained_->step == position_.completed) {
    sums = std::move(retained_->sums);
    tables = std::move(retained_->tables);
  }
  retained_.reset();
  inbox_.end();
  reduced_ = reduced_of(result.trailer, result.values, layout_.gradients(), position_.number());
  if (layout_.sharded() && !position_.last()) {
    reduced_.gradients.clear();
    reduced_.shards = shards_of(result.trailer, *layout_.buckets(), std::move(sums));
    for (const GradientShards::Bucket& bucket : reduced_.shards->kept)
      if (!layout_.of_table(bucket.number)) result.kept.push_back(bucket.number);
    result.kept.insert(result.kept.end(), tables.begin(), tables.end());
  }
  for (const messages::StateChunks& bucket : result.trailer.chunks)
    append(reduced_.state_chunks.emplace_back(BucketChunks{.bucket = bucket.bucket, .chunks = {}}).chunks,
           bucket.chunks);
  result.samples = reduced_.samples;
  return result;
}

Reduced StepReduction::take_reduced() { return std::exchange(reduced_, {}); }

// An audited step is reduced where its inputs can be examined. A group adds up whole rank gradients, which members do
// not keep from ZeRO's second stage on.
bool StepReduction::in_group() const {
  return groups_.agreed() && shards_.zero() < 2 && !audit_.audits() && !position_.last();
}

std::string StepReduction::missing() const { return inbox_.exchange() ? inbox_.exchange()->missing() : ""; }

std::optional<int64_t> StepReduction::group_progress() const {
  const Exchange* const exchange = inbox_.exchange();
  return exchange && exchange->group() ? exchange->group()->progress() : std::nullopt;
}

}  // namespace elinvar
