#include "elastic/protocol/exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "tensor/base/check.h"
#include "tensor/digest_tree.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/global_norm.h"
#include "tensor/ops/pointwise.h"
#include "tensor/side_queue.h"
#include "tensor/transfer.h"

namespace elinvar {
namespace {

Tensor scaled(Tensor x, double factor) {
  if (!x.unique() || !x.contiguous()) return mul(x, Tensor::scalar(factor, x.dtype(), x.device()));
  scale_into(x, factor);
  return x;
}

std::vector<Tensor> tensors_of(std::span<const Blob> blobs) {
  std::vector<Tensor> tensors;
  for (const Blob& blob : blobs) tensors.push_back(tensor_of(blob));
  return tensors;
}

messages::SumFacts facts_of(int bucket, std::span<const Tensor> slices) {
  const std::vector<double> squares = segment_sums(slices);
  std::string chunks;
  for (const TensorDigest& slice : digest_tree(slices))
    for (const Digest& chunk : slice.chunks) chunks.append(reinterpret_cast<const char*>(&chunk), sizeof(chunk));
  std::string bytes(reinterpret_cast<const char*>(squares.data()), squares.size() * sizeof(double));
  return {.bucket = bucket, .squares = blob_of(std::move(bytes)), .chunks = blob_of(std::move(chunks))};
}

}  // namespace

messages::BucketResult result_of(const Buckets& buckets, int bucket, const std::vector<Tensor>& values) {
  messages::BucketResult result{.bucket = bucket};
  if (!values.empty())
    for (const Tensor& slice : buckets.cut(bucket, values)) result.slices.push_back(blob_of(slice));
  return result;
}

messages::BucketResult result_of(int bucket, const std::vector<Tensor>& slices) {
  messages::BucketResult result{.bucket = bucket};
  for (const Tensor& slice : slices) result.slices.push_back(blob_of(slice));
  return result;
}

std::vector<Tensor> on_host(const std::vector<Tensor>& tensors) {
  std::vector<Download> sent(tensors.begin(), tensors.end());
  std::vector<Tensor> here;
  for (Download& tensor : sent) here.push_back(tensor.wait());
  return here;
}

Exchange::Exchange(Options options)
    : options_(std::move(options)),
      trailer_(options_.vranks, options_.members, options_.me),
      state_(static_cast<size_t>(bucket_count())) {
  if (options_.group)
    group_.emplace(std::move(options_.group), GroupExchange::Options{.vranks = options_.vranks,
                                                                     .members = options_.members,
                                                                     .me = options_.me,
                                                                     .buckets = options_.buckets,
                                                                     .gradients = options_.gradients,
                                                                     .contributes = options_.contributes,
                                                                     .keepers = options_.keepers,
                                                                     .spoil = options_.spoil});
  for (int b = 0; sharded(b); ++b) state_[static_cast<size_t>(b)].done = !gets_sum(options_.me, b);
  for (int b = 0; options_.contributes && b < bucket_count(); ++b)
    state_[static_cast<size_t>(b)].contributed = !options_.contributes(options_.me, b);
}

void Exchange::contribute(std::vector<Subtree> roots, const messages::TrailerPart& part, const StateDigests& digests,
                          const SendToMember& send) {
  int64_t count = 0;
  for (const auto& [vrank, facts] : part.facts) count += facts.count;
  if (options_.members == 1 && options_.buckets) {  // alone: whole tensors, reduced in place without buckets
    TreeReducer reducer(options_.vranks);
    for (Subtree& root : roots) reducer.add(std::move(root));
    roots.clear();
    values_ = reducer.take_root();
    for (size_t i = 0; i < values_.size() && i < static_cast<size_t>(options_.gradients) && count > 0; ++i)
      values_[i] = scaled(std::move(values_[i]), 1.0 / static_cast<double>(count));
    for (Bucket& bucket : state_) bucket.done = true;
    for (int b = 0; sharded(b); ++b)
      keep(b, values_.empty() ? std::vector<Tensor>() : options_.buckets->cut(b, values_));
    for (size_t i = 0; sharded(0) && i < values_.size() && i < static_cast<size_t>(options_.gradients); ++i)
      values_[i] = Tensor();
  }
  std::vector<const Subtree*> all;
  for (const Subtree& root : roots) all.push_back(&root);
  const auto left = [](const Bucket& bucket) { return !bucket.contributed; };
  if (group_ && std::any_of(state_.begin(), state_.end(), left))
    SideQueue(group_->device(), SideQueue::Of::gradients).follow();
  if (group_) group_->tell_roots(all, options_.reports ? count : 0, send);
  for (int b = 0; b < bucket_count() && (group_ || !all.empty()); ++b)
    if (left(state_[static_cast<size_t>(b)])) contribute(b, all, count, send);
  part_.emplace(part, digests);
  if (!options_.reports) part_->part.facts.clear();
  send_part(send);
}

bool Exchange::send_part(const SendToMember& send) {
  if (!part_ || (options_.holds_back && !options_.holds_back().empty())) return false;
  for (int b = 0; sharded(b); ++b)
    if (!state_[static_cast<size_t>(b)].done) return false;
  part_->part.sums = std::exchange(facts_, {});
  trailer_.contribute(part_->part, part_->digests, send);
  part_.reset();
  return true;
}

std::map<int, std::vector<Tensor>> Exchange::take_sums() {
  std::erase_if(sums_, [&](const auto& sum) { return !keeps(options_.me, sum.first); });  // they were only audited
  return std::move(sums_);
}

bool Exchange::keeps(int member, int b) const {
  const std::vector<int>& keepers = options_.keepers[static_cast<size_t>(b)];
  return std::ranges::find(keepers, member) != keepers.end();
}

bool Exchange::gets_sum(int member, int b) const { return !sharded(b) || audited(b) || keeps(member, b); }

void Exchange::contribute(int b, const std::vector<const Subtree*>& roots, int64_t count, const SendToMember& send) {
  Bucket& bucket = state_[static_cast<size_t>(b)];
  invariant(!bucket.contributed, "a member contributes to a bucket once");
  bucket.contributed = true;
  if (group_) return group_->contribute(b, roots, options_.reports ? count : 0, send);
  std::vector<Subtree> own;
  for (const Subtree* root : roots) {
    std::vector<Tensor> slices;
    if (!root->values.empty()) slices = on_host(options_.buckets->cut(b, root->values));
    own.push_back({root->begin, root->end, std::move(slices)});
  }
  give(b, std::move(own), count, send);
}

void Exchange::contribute(int b, int vrank, const std::vector<Tensor>& slices, int64_t count,
                          const SendToMember& send) {
  invariant(options_.by_rank && !group_, "rank gradients are contributed one by one");
  std::vector<Tensor> here = on_host(slices);
  // A view would hold the memory of the whole tensor.
  for (size_t i = 0; owned(b) && i < here.size(); ++i) {
    const Shape& whole = options_.buckets->shapes()[static_cast<size_t>(options_.buckets->slices(b)[i].tensor)];
    if (here[i].numel() < whole.numel() && here[i].shares_storage(slices[i])) here[i] = here[i].clone();
  }
  std::vector<Subtree> rank(1);
  rank[0] = {vrank, vrank + 1, std::move(here)};
  give(b, std::move(rank), count, send);
}

// Gives subtrees to the bucket's owner, and to those that check it. Their tensors are on the CPU.
void Exchange::give(int b, std::vector<Subtree> roots, int64_t count, const SendToMember& send) {
  const bool checked = audited(b);
  messages::BucketRoots told{.bucket = b, .count = count};
  if (!owned(b) || checked) {
    for (const Subtree& root : roots) {
      told.roots.push_back({root.begin, root.end, !root.values.empty()});
      for (const Tensor& slice : root.values) told.slices.push_back(blob_of(slice));
    }
  }
  if (!owned(b)) send(owner(b), messages::Contribution{told});
  if (checked) {
    for (const int checker : options_.audit->roles().checkers)
      if (checker != options_.me) send(checker, messages::Check{told});
    if (options_.audit->checks()) take(checked_, roots, count);
  }
  if (!owned(b)) return;
  take(state_[static_cast<size_t>(b)], std::move(roots), count);
  if (options_.by_rank) arrived_.insert(b);
}

void Exchange::take(Bucket& bucket, std::vector<Subtree> roots, int64_t count) {
  for (const Subtree& root : roots) bucket.leaves += root.end - root.begin;
  bucket.count += count;
  std::move(roots.begin(), roots.end(), std::back_inserter(bucket.roots));
}

std::string Exchange::receive(const Message& message, const SendToMember& send) {
  return visit(
             message.payload, [&](const messages::Contribution& contribution) { return receive(contribution); },
             [&](const messages::Check& check) { return receive(check); },
             [&](const messages::BucketResult& result) { return receive(result); },
             [&](const messages::TrailerPart& part) { return trailer_.receive(part, send); },
             [&](const messages::Trailer& trailer) { return trailer_.receive(trailer); },
             [&](const messages::GroupRoots& roots) {
               return group_ ? group_->receive(roots) : std::string("roots that are not expected");
             },
             [&](const messages::Word& word) {
               return options_.audit ? options_.audit->hear(word.member, word.claims)
                                     : std::string("a word that is not expected");
             })
      .value_or("no message of a reduction");
}

std::string Exchange::receive(const messages::Contribution& contribution) {
  const int b = contribution.bucket;
  if (b < 0 || b >= bucket_count() || !owned(b)) return fmt::format("bucket {} is not mine", b);
  if (options_.by_rank) arrived_.insert(b);
  return receive_roots(contribution, state_[static_cast<size_t>(b)]);
}

std::string Exchange::receive(const messages::Check& check) {
  if (!options_.audit || !options_.audit->checks() || check.bucket != options_.audit->roles().bucket)
    return "a check that is not expected";
  return receive_roots(check, checked_);
}

std::string Exchange::receive_roots(const messages::BucketRoots& told, Bucket& bucket) {
  const size_t slices = options_.buckets->slices(told.bucket).size();
  std::vector<Subtree> roots;
  size_t at = 0;
  for (const messages::Root& root : told.roots) {
    Subtree subtree{root.begin, root.end, {}};
    if (!is_node(subtree.begin, subtree.end, options_.vranks)) return "a root is no node of the tree";
    for (const Subtree& other : bucket.roots)
      if (subtree.begin < other.end && other.begin < subtree.end) return "a rank gradient came twice";
    if (root.present) {
      if (at + slices > told.slices.size()) return "blobs are missing";
      const std::span<const Blob> blobs(told.slices.data() + at, slices);
      if (!options_.buckets->fits(told.bucket, blobs)) return "a blob has another size";
      subtree.values = tensors_of(blobs);
      at += slices;
    }
    roots.push_back(std::move(subtree));
  }
  take(bucket, std::move(roots), told.count);
  return "";
}

std::string Exchange::receive(const messages::BucketResult& result) {
  const int b = result.bucket;
  if (b < 0 || b >= bucket_count() || owned(b) || !gets_sum(options_.me, b))
    return fmt::format("bucket {} is not expected", b);
  Bucket& bucket = state_[static_cast<size_t>(b)];
  if (bucket.done) return "";
  std::vector<Tensor> sum;
  if (!result.slices.empty()) {
    if (!options_.buckets->fits(b, result.slices)) return "a blob has another size";
    sum = tensors_of(result.slices);
  }
  if (sharded(b)) keep(b, std::move(sum));
  else if (!sum.empty()) place(b, std::move(sum));
  bucket.done = true;
  return "";
}

bool Exchange::work(const SendToMember& send) {
  if (group_) return reduce_in_group(send);
  if (reduce_arrived()) return true;
  for (int b = 0; b < bucket_count(); ++b) {
    Bucket& bucket = state_[static_cast<size_t>(b)];
    if (!owned(b) || bucket.done || bucket.leaves < options_.vranks) continue;
    std::sort(bucket.roots.begin(), bucket.roots.end(), [](const auto& x, const auto& y) { return x.begin < y.begin; });
    const bool audited = this->audited(b);
    const Digest inputs = audited ? digest_of(bucket.roots, bucket.count) : Digest{};
    std::vector<Tensor> sum = add_up(b, bucket);
    const bool present = !sum.empty();
    if (audited) {
      const Digest result = digest_of(sum);
      options_.audit->receive(result);
      claim({inputs, result}, send);
    }
    bucket.done = true;
    if (sharded(b)) keep(b, std::move(sum));
    else if (present) place(b, std::move(sum));
    if (options_.members > 1) {
      const messages::BucketResult result =
          sharded(b) ? result_of(b, sums_.at(b))
                     : result_of(*options_.buckets, b, present ? values_ : std::vector<Tensor>());
      for (int other = 0; other < options_.members; ++other)
        if (other != options_.me && gets_sum(other, b)) send(other, result);
    }
    send_part(send);
    return true;
  }
  return options_.audit && audit_sum(send);
}

bool Exchange::reduce_in_group(const SendToMember& send) {
  if (!group_->work()) return false;
  std::map<int, std::vector<Tensor>> sums = group_->take_sums();
  for (int b = 0; b < bucket_count(); ++b) {
    if (sharded(b) && gets_sum(options_.me, b)) keep(b, std::move(sums[b]));
    else if (const auto sum = sums.find(b); sum != sums.end()) place(b, std::move(sum->second));
    state_[static_cast<size_t>(b)].done = true;
  }
  send_part(send);
  return true;
}

// With `by_rank`: adds up what has come of one bucket as far as the tree allows. An audited bucket needs its inputs.
bool Exchange::reduce_arrived() {
  while (!arrived_.empty()) {
    const int b = *arrived_.begin();
    arrived_.erase(arrived_.begin());
    Bucket& bucket = state_[static_cast<size_t>(b)];
    if (bucket.done || audited(b) || bucket.leaves == options_.vranks) continue;
    std::sort(bucket.roots.begin(), bucket.roots.end(), [](const auto& x, const auto& y) { return x.begin < y.begin; });
    const size_t before = bucket.roots.size();
    TreeReducer reducer(options_.vranks);
    for (Subtree& root : bucket.roots) reducer.add(std::move(root));
    bucket.roots = reducer.take_subtrees();
    if (bucket.roots.size() < before) return true;
  }
  return false;
}

// Adds up a bucket that has all rank gradients, in order.
std::vector<Tensor> Exchange::add_up(int b, Bucket& bucket) {
  TreeReducer reducer(options_.vranks);
  for (Subtree& root : bucket.roots) reducer.add(std::move(root));
  bucket.roots.clear();
  std::vector<Tensor> sum = reducer.take_root();
  const std::span<const Slice> slices = options_.buckets->slices(b);
  for (size_t i = 0; i < sum.size(); ++i)
    if (slices[i].tensor < options_.gradients && bucket.count > 0)
      sum[i] = scaled(std::move(sum[i]), 1.0 / static_cast<double>(bucket.count));
  if (options_.spoil && !sum.empty()) options_.spoil(b, sum);
  return sum;
}

// Does the extra work for the audited bucket. Returns false if there is none now.
bool Exchange::audit_sum(const SendToMember& send) {
  const int b = options_.audit->roles().bucket;
  if (options_.audit->checks() && !options_.audit->added() && checked_.leaves == options_.vranks) {
    std::sort(checked_.roots.begin(), checked_.roots.end(),
              [](const auto& x, const auto& y) { return x.begin < y.begin; });
    const Digest inputs = digest_of(checked_.roots, checked_.count);
    claim({inputs, digest_of(add_up(b, checked_))}, send);
    return true;
  }
  if (options_.audit->received() || !state_[static_cast<size_t>(b)].done) return false;
  if (sharded(b)) {
    options_.audit->receive(digest_of(sums_.at(b)));
    return true;
  }
  const std::span<const Slice> slices = options_.buckets->slices(b);
  const bool present = !values_.empty() && values_[static_cast<size_t>(slices[0].tensor)].defined();
  options_.audit->receive(digest_of(present ? options_.buckets->cut(b, values_) : std::vector<Tensor>()));
  return true;
}

void Exchange::claim(const SumClaim& claim, const SendToMember& send) {
  options_.audit->add(claim);
  for (int other = 0; other < options_.members && options_.audit->speaks(); ++other)
    if (other != options_.me) send(other, messages::Word{.member = options_.me, .claims = options_.audit->said()});
}

void Exchange::keep(int b, std::vector<Tensor> slices) {
  if (owned(b)) facts_.push_back(facts_of(b, slices));
  sums_.emplace(b, std::move(slices));
}

// Uses a slice that is a whole tensor without a copy; copies other slices to their places.
void Exchange::place(int bucket, std::vector<Tensor> slices) {
  const std::span<const Slice> places = options_.buckets->slices(bucket);
  if (values_.empty()) {
    for (const Shape& shape : options_.buckets->shapes())
      values_.push_back(shape.numel() == 0 ? Tensor::empty(shape, DType::f32, slices[0].device()) : Tensor());
  }
  for (size_t i = 0; i < slices.size(); ++i) {
    const Slice& at = places[i];
    const Shape& shape = options_.buckets->shapes()[static_cast<size_t>(at.tensor)];
    Tensor& value = values_[static_cast<size_t>(at.tensor)];
    if (at.end - at.begin == shape.numel()) {
      value = slices[i].reshape(shape);
      continue;
    }
    if (!value.defined()) value = Tensor::empty(shape, DType::f32, slices[i].device());
    Tensor part = view_of(value, at);
    copy(slices[i], part);
  }
}

std::string Exchange::missing() const {
  if (group_ && (group_->progress() || !group_->trouble().empty()))
    return "";  // the wait for the group has its own deadline
  if (group_ && !group_->missing().empty()) return group_->missing();
  std::string text = missing_buckets();
  if (text.empty() && options_.audit) text = options_.audit->missing();
  if (text.empty() && part_ && options_.holds_back) text = options_.holds_back();
  const std::string trailer = trailer_.missing();
  return text.empty() || trailer.empty() ? text + trailer : text + ", " + trailer;
}

std::string Exchange::missing_buckets() const {
  if (group_) return group_->done() ? "" : "the sums of the group";
  std::string text;
  int buckets = 0;
  for (int b = 0; b < bucket_count(); ++b) {
    const Bucket& bucket = state_[static_cast<size_t>(b)];
    if (bucket.done || (owned(b) && bucket.leaves == options_.vranks)) continue;
    if (++buckets > 1) continue;
    text = owned(b) ? fmt::format("{} of {} leaves of bucket {}", options_.vranks - bucket.leaves, options_.vranks, b)
                    : fmt::format("the result of bucket {}", b);
  }
  return buckets > 1 ? text + fmt::format(" and {} more", buckets - 1) : text;
}

bool Exchange::complete() const {
  if (options_.audit && !options_.audit->complete()) return false;
  const bool reduced = group_ ? group_->done() : std::ranges::all_of(state_, &Bucket::done);
  return reduced && trailer_.trailer();
}

}  // namespace elinvar
