#include "elastic/protocol/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tensor/base/check.h"
#include "tensor/base/reason.h"
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

}  // namespace

messages::BucketResult result_of(const Buckets& buckets, int bucket, const std::vector<Tensor>& values) {
  messages::BucketResult result{.bucket = bucket};
  if (!values.empty())
    for (const Tensor& slice : buckets.cut(bucket, values)) result.slices.push_back(blob_of(slice));
  return result;
}

std::vector<Tensor> on_host(const std::vector<Tensor>& tensors) {
  std::vector<Download> sent(tensors.begin(), tensors.end());
  std::vector<Tensor> here;
  for (Download& tensor : sent) here.push_back(tensor.wait());
  return here;
}

Exchange::Exchange(int vranks, int members, int me, const Buckets* buckets, int gradients)
    : vranks_(vranks),
      members_(members),
      me_(me),
      buckets_(buckets),
      gradients_(gradients),
      state_(static_cast<size_t>(bucket_count())) {}

void Exchange::contribute(std::vector<Subtree> roots, const messages::TrailerPart& part, const StateDigests& digests,
                          const Send& send) {
  int64_t count = 0;
  for (const auto& [vrank, facts] : part.facts) count += facts.count;
  if (members_ == 1 && buckets_) {  // alone: whole tensors, reduced in place without buckets
    TreeReducer reducer(vranks_);
    for (Subtree& root : roots) reducer.add(std::move(root));
    roots.clear();
    values_ = reducer.take_root();
    for (size_t i = 0; i < values_.size() && i < static_cast<size_t>(gradients_) && count > 0; ++i)
      values_[i] = scaled(std::move(values_[i]), 1.0 / static_cast<double>(count));
    for (Bucket& bucket : state_) bucket.done = true;
  }
  std::vector<const Subtree*> all;
  for (const Subtree& root : roots) all.push_back(&root);
  const auto left = [](const Bucket& bucket) { return !bucket.contributed; };
  if (group_ && std::any_of(state_.begin(), state_.end(), left))
    SideQueue(group_->device(), SideQueue::Of::gradients).follow();
  for (int b = 0; b < bucket_count() && (group_ || !all.empty()); ++b)
    if (left(state_[static_cast<size_t>(b)])) contribute(b, all, count, send);
  told_ = true;
  digests_ = digests;
  if (me_ == 0) add_part(part, send);
  else send(0, part);
}

void Exchange::contribute(int b, const std::vector<const Subtree*>& roots, int64_t count, const Send& send) {
  Bucket& bucket = state_[static_cast<size_t>(b)];
  invariant(!bucket.contributed, "a member contributes to a bucket once");
  bucket.contributed = true;
  if (group_) {
    tell_roots(roots, count, send);
    for (const Subtree* root : roots) {
      bucket.roots.push_back({root->begin, root->end, {}});
      if (!root->values.empty()) bucket.roots.back().values = buckets_->cut(b, root->values);
    }
    return;
  }
  const bool checked = audit_ && audit_->roles().bucket == b;
  std::vector<Subtree> own;
  messages::BucketRoots told{.bucket = b, .count = count};
  for (const Subtree* root : roots) {
    std::vector<Tensor> slices;
    if (!root->values.empty()) slices = on_host(buckets_->cut(b, root->values));
    if (!owned(b) || checked) {
      told.roots.push_back({root->begin, root->end, !slices.empty()});
      for (const Tensor& slice : slices) told.slices.push_back(blob_of(slice));
    }
    if (owned(b) || checked) own.push_back({root->begin, root->end, std::move(slices)});
  }
  if (owned(b)) take(bucket, own, count);
  else send(b % members_, messages::Contribution{told});
  if (!checked) return;
  for (const int checker : audit_->roles().checkers)
    if (checker != me_) send(checker, messages::Check{told});
  if (audit_->checks()) take(checked_, std::move(own), count);
}

void Exchange::take(Bucket& bucket, std::vector<Subtree> roots, int64_t count) {
  for (const Subtree& root : roots) bucket.leaves += root.end - root.begin;
  bucket.count += count;
  std::move(roots.begin(), roots.end(), std::back_inserter(bucket.roots));
}

bool Exchange::takes(const Message& message) {
  return std::visit(
      Overloaded{[](const messages::Contribution&) { return true; }, [](const messages::Check&) { return true; },
                 [](const messages::BucketResult&) { return true; }, [](const messages::TrailerPart&) { return true; },
                 [](const messages::Trailer&) { return true; }, [](const messages::GroupRoots&) { return true; },
                 [](const messages::Word&) { return true; }, [](const auto&) { return false; }},
      message.payload);
}

int64_t Exchange::attempt_of(const Message& message) {
  return std::visit(Overloaded{[](const messages::BucketResult& result) { return result.attempt.value_or(0); },
                               [](const messages::Trailer& trailer) { return trailer.attempt.value_or(0); },
                               [](const auto&) { return int64_t{0}; }},
                    message.payload);
}

std::string Exchange::receive(const Message& message, const Send& send) {
  return std::visit(Overloaded{[&](const messages::Contribution& contribution) { return receive(contribution); },
                               [&](const messages::Check& check) { return receive(check); },
                               [&](const messages::BucketResult& result) { return receive(result); },
                               [&](const messages::TrailerPart& part) { return receive(part, send); },
                               [&](const messages::Trailer& trailer) { return receive(trailer); },
                               [&](const messages::GroupRoots& roots) { return receive(roots); },
                               [&](const messages::Word& word) {
                                 return audit_ ? audit_->hear(word.member, word.claims)
                                               : std::string("a word that is not expected");
                               },
                               [](const auto&) { return std::string("no message of a reduction"); }},
                    message.payload);
}

std::string Exchange::receive(const messages::Contribution& contribution) {
  const int b = contribution.bucket;
  if (b < 0 || b >= bucket_count() || !owned(b)) return fmt::format("bucket {} is not mine", b);
  return receive_roots(contribution, state_[static_cast<size_t>(b)]);
}

std::string Exchange::receive(const messages::Check& check) {
  if (!audit_ || !audit_->checks() || check.bucket != audit_->roles().bucket) return "a check that is not expected";
  return receive_roots(check, checked_);
}

std::string Exchange::receive_roots(const messages::BucketRoots& told, Bucket& bucket) {
  const size_t slices = buckets_->slices(told.bucket).size();
  std::vector<Subtree> roots;
  size_t at = 0;
  for (const messages::Root& root : told.roots) {
    Subtree subtree{root.begin, root.end, {}};
    if (!is_node(subtree.begin, subtree.end, vranks_)) return "a root is no node of the tree";
    for (const Subtree& other : bucket.roots)
      if (subtree.begin < other.end && other.begin < subtree.end) return "a leaf came twice";
    if (root.present) {
      if (at + slices > told.slices.size()) return "blobs are missing";
      const std::span<const Blob> blobs(told.slices.data() + at, slices);
      if (!buckets_->fits(told.bucket, blobs)) return "a blob has another size";
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
  if (b < 0 || b >= bucket_count() || owned(b)) return fmt::format("bucket {} is not expected", b);
  Bucket& bucket = state_[static_cast<size_t>(b)];
  if (bucket.done) return "";
  if (!result.slices.empty()) {
    if (!buckets_->fits(b, result.slices)) return "a blob has another size";
    place(b, tensors_of(result.slices));
  }
  bucket.done = true;
  return "";
}

std::string Exchange::receive(const messages::TrailerPart& part, const Send& send) {
  if (me_ != 0 || part.member <= 0 || part.member >= members_) return "a part that is not expected";
  add_part(part, send);
  return "";
}

std::string Exchange::receive(const messages::Trailer& trailer) {
  if (trailer.facts.size() != static_cast<size_t>(vranks_)) return "the trailer has another number of virtual ranks";
  if (!trailer_) trailer_ = trailer;
  return "";
}

void Exchange::add_part(messages::TrailerPart part, const Send& send) {
  parts_[part.member] = std::move(part);
  if (static_cast<int>(parts_.size()) < members_ || trailer_) return;
  messages::Trailer t;
  t.agreed = INT64_MAX;
  t.facts.resize(static_cast<size_t>(vranks_));
  std::string states;
  bool differ = false;
  for (auto& [from, p] : parts_) {
    t.agreed = std::min(t.agreed, p.held);
    t.seconds.push_back(p.seconds);
    if (p.audit) t.audit.push_back(*p.audit);
    for (auto& [vrank, facts] : p.facts)
      if (vrank >= 0 && vrank < vranks_) t.facts[static_cast<size_t>(vrank)] = std::move(facts);
    t.group = from == 0 || p.group == t.group ? p.group : 0;
    if (!t.scaling_state) t.scaling_state = p.scaling_state;
    if (p.scaling_state != t.scaling_state)
      t.contradiction = fmt::format("member {} has made the step with another scaling state", from);
    if (!p.state) continue;
    if (!t.state) t.state = p.state;
    differ = differ || *t.state != *p.state;
    states += fmt::format("{}member {} has {}", states.empty() ? "" : ", ", from, p.state->hex());
  }
  if (t.state) t.state_digests = digests_;
  if (differ) t.contradiction = states;
  parts_.clear();
  for (int other = 1; other < members_; ++other) send(other, t);
  trailer_ = std::move(t);
}

bool Exchange::work(const Send& send) {
  if (group_) return work_in_group();
  for (int b = 0; b < bucket_count(); ++b) {
    Bucket& bucket = state_[static_cast<size_t>(b)];
    if (!owned(b) || bucket.done || bucket.leaves < vranks_) continue;
    std::sort(bucket.roots.begin(), bucket.roots.end(), [](const auto& x, const auto& y) { return x.begin < y.begin; });
    const bool audited = audit_ && audit_->roles().bucket == b;
    const Digest inputs = audited ? digest_of(bucket.roots, bucket.count) : Digest{};
    std::vector<Tensor> sum = add_up(b, bucket);
    const bool present = !sum.empty();
    if (audited) {
      received_ = digest_of(sum);
      claim({inputs, *received_}, send);
    }
    if (present) place(b, std::move(sum));
    bucket.done = true;
    if (members_ > 1) {
      const messages::BucketResult result = result_of(*buckets_, b, present ? values_ : std::vector<Tensor>());
      for (int other = 0; other < members_; ++other)
        if (other != me_) send(other, result);
    }
    return true;
  }
  return audit_ && audit_sum(send);
}

// Adds up a bucket that has all rank gradients, in order.
std::vector<Tensor> Exchange::add_up(int b, Bucket& bucket) {
  TreeReducer reducer(vranks_);
  for (Subtree& root : bucket.roots) reducer.add(std::move(root));
  bucket.roots.clear();
  std::vector<Tensor> sum = reducer.take_root();
  const std::span<const Slice> slices = buckets_->slices(b);
  for (size_t i = 0; i < sum.size(); ++i)
    if (slices[i].tensor < gradients_ && bucket.count > 0)
      sum[i] = scaled(std::move(sum[i]), 1.0 / static_cast<double>(bucket.count));
  if (spoil_ && !sum.empty()) spoil_(b, sum);
  return sum;
}

// Does the extra work for the audited bucket. Returns false if there is none now.
bool Exchange::audit_sum(const Send& send) {
  const int b = audit_->roles().bucket;
  if (audit_->checks() && !audit_->added() && checked_.leaves == vranks_) {
    std::sort(checked_.roots.begin(), checked_.roots.end(),
              [](const auto& x, const auto& y) { return x.begin < y.begin; });
    const Digest inputs = digest_of(checked_.roots, checked_.count);
    claim({inputs, digest_of(add_up(b, checked_))}, send);
    return true;
  }
  if (received_ || !state_[static_cast<size_t>(b)].done) return false;
  const std::span<const Slice> slices = buckets_->slices(b);
  const bool present = !values_.empty() && values_[static_cast<size_t>(slices[0].tensor)].defined();
  received_ = digest_of(present ? buckets_->cut(b, values_) : std::vector<Tensor>());
  return true;
}

void Exchange::claim(const SumClaim& claim, const Send& send) {
  audit_->add(claim);
  for (int other = 0; other < members_ && audit_->speaks(); ++other)
    if (other != me_) send(other, messages::Word{.member = me_, .claims = audit_->said()});
}

// Uses a slice that is a whole tensor without a copy; copies other slices to their places.
void Exchange::place(int bucket, std::vector<Tensor> slices) {
  const std::span<const Slice> places = buckets_->slices(bucket);
  values_.resize(buckets_->shapes().size());
  for (size_t i = 0; i < slices.size(); ++i) {
    const Slice& at = places[i];
    const Shape& shape = buckets_->shapes()[static_cast<size_t>(at.tensor)];
    Tensor& value = values_[static_cast<size_t>(at.tensor)];
    if (at.end - at.begin == shape.numel()) {
      value = slices[i].reshape(shape);
      continue;
    }
    if (!value.defined()) value = Tensor::empty(shape);
    std::memcpy(value.data<float>() + at.begin, slices[i].raw(), static_cast<size_t>(slices[i].bytes()));
  }
}

std::string Exchange::missing() const {
  if (sum_ || !trouble_.empty()) return "";  // the wait for the group has its own deadline
  if (group_ && static_cast<int>(group_roots_.size()) < members_)
    return fmt::format("the roots of {} of {} members", static_cast<size_t>(members_) - group_roots_.size(), members_);
  std::string text;
  int buckets = 0;
  for (int b = 0; b < bucket_count(); ++b) {
    const Bucket& bucket = state_[static_cast<size_t>(b)];
    if (bucket.done || (owned(b) && bucket.leaves == vranks_)) continue;
    if (++buckets > 1) continue;
    text = owned(b) ? fmt::format("{} of {} leaves of bucket {}", vranks_ - bucket.leaves, vranks_, b)
                    : fmt::format("the result of bucket {}", b);
  }
  if (buckets > 1) text += fmt::format(" and {} more", buckets - 1);
  if (text.empty() && audit_) text = audit_->missing();
  if (trailer_) return text;
  if (!text.empty()) text += ", ";
  if (me_ == 0)
    return text + fmt::format("{} of {} parts of the trailer", static_cast<size_t>(members_) - parts_.size(), members_);
  return text + "the trailer";
}

bool Exchange::complete() const {
  if (audit_ && (!received_ || !audit_->missing().empty())) return false;
  return trailer_ && std::all_of(state_.begin(), state_.end(), [](const Bucket& b) { return b.done; });
}

}  // namespace elinvar
