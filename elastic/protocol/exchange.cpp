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

using Json = nlohmann::json;

Tensor scaled(Tensor x, double factor) {
  if (!x.unique() || !x.contiguous()) return mul(x, Tensor::scalar(factor, x.dtype(), x.device()));
  scale_into(x, factor);
  return x;
}

Message result_message(const Buckets& buckets, int bucket, const std::vector<Tensor>& values) {
  Message message{.kind = "result", .body = {{"bucket", bucket}, {"present", !values.empty()}}};
  if (!values.empty())
    for (const Tensor& slice : buckets.cut(bucket, values)) message.blobs.push_back(blob_of(slice));
  return message;
}

Json to_json(const TrailerPart& part, int member) {
  Json json = {{"member", member},
               {"held", part.held},
               {"seconds", std::bit_cast<uint64_t>(part.seconds)},
               {"facts", Json::object()}};
  for (const auto& [vrank, facts] : part.facts) json["facts"][std::to_string(vrank)] = to_json(facts);
  if (part.state) json["state"] = part.state->hex();
  if (part.pace) json["pace"] = to_json(*part.pace);
  if (part.audit) json["audit"] = to_json(*part.audit);
  if (part.group != 0) json["group"] = part.group;
  return json;
}

TrailerPart part_from(const Json& json) {
  TrailerPart part{.held = json.at("held").get<int64_t>(),
                   .seconds = std::bit_cast<double>(json.at("seconds").get<uint64_t>()),
                   .facts = {},
                   .state = {}};
  for (const auto& [vrank, facts] : json.at("facts").items())
    part.facts.emplace(std::stoi(vrank), leaf_facts_from(facts));
  if (json.contains("state")) part.state = Digest::parse(json["state"].get<std::string>());
  if (json.contains("pace")) part.pace = pace_from(json["pace"]);
  if (json.contains("audit")) part.audit = audit_claims_from(json["audit"]);
  part.group = json.value("group", int64_t{0});
  return part;
}

}  // namespace

std::vector<Tensor> on_host(const std::vector<Tensor>& tensors) {
  std::vector<Download> sent(tensors.begin(), tensors.end());
  std::vector<Tensor> here;
  for (Download& tensor : sent) here.push_back(tensor.wait());
  return here;
}

Json to_json(const Trailer& t) {
  Json json = {{"agreed", t.agreed}, {"facts", Json::array()}, {"seconds", Json::array()}};
  for (const LeafFacts& facts : t.facts) json["facts"].push_back(to_json(facts));
  for (const double s : t.seconds) json["seconds"].push_back(std::bit_cast<uint64_t>(s));
  if (t.state) json["state"] = t.state->hex();
  if (t.state) json["state_digests"] = {t.state_digests.tensors, t.state_digests.chunks};
  if (t.pace) json["pace"] = to_json(*t.pace);
  if (!t.contradiction.empty()) json["contradiction"] = t.contradiction;
  if (t.group != 0) json["group"] = t.group;
  for (const AuditClaims& claims : t.audit) json["audit"].push_back(to_json(claims));
  return json;
}

Trailer trailer_from(const Json& json) {
  Trailer t;
  t.agreed = json.at("agreed").get<int64_t>();
  for (const Json& facts : json.at("facts")) t.facts.push_back(leaf_facts_from(facts));
  for (const Json& s : json.at("seconds")) t.seconds.push_back(std::bit_cast<double>(s.get<uint64_t>()));
  if (json.contains("state")) {
    t.state = Digest::parse(json["state"].get<std::string>());
    const Json& parts = json.at("state_digests");
    t.state_digests = {parts.at(0).get<std::string>(), parts.at(1).get<std::string>()};
  }
  if (json.contains("pace")) t.pace = pace_from(json["pace"]);
  t.contradiction = json.value("contradiction", "");
  t.group = json.value("group", int64_t{0});
  if (json.contains("audit"))
    for (const Json& claims : json["audit"]) t.audit.push_back(audit_claims_from(claims));
  return t;
}

Exchange::Exchange(int vranks, int members, int me, const Buckets* buckets, int gradients)
    : vranks_(vranks),
      members_(members),
      me_(me),
      buckets_(buckets),
      gradients_(gradients),
      state_(static_cast<size_t>(bucket_count())) {}

void Exchange::contribute(std::vector<Subtree> roots, const TrailerPart& part, const Send& send) {
  int64_t count = 0;
  for (const auto& [vrank, facts] : part.facts) count += facts.count;
  if (members_ == 1 && buckets_) {  // alone: whole tensors, in place, without buckets
    TreeFold fold(vranks_);
    for (Subtree& root : roots) fold.add(std::move(root));
    roots.clear();
    values_ = fold.take_root();
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
  if (me_ == 0) add_part(0, part, send);
  else send(0, {.kind = "part", .body = to_json(part, me_)});
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
  Message message{.kind = "contribution", .body = {{"bucket", b}, {"count", count}, {"roots", Json::array()}}};
  for (const Subtree* root : roots) {
    std::vector<Tensor> slices;
    if (!root->values.empty()) slices = on_host(buckets_->cut(b, root->values));
    if (!owned(b) || checked) {
      message.body["roots"].push_back({root->begin, root->end, !slices.empty()});
      for (const Tensor& slice : slices) message.blobs.push_back(blob_of(slice));
    }
    if (owned(b) || checked) own.push_back({root->begin, root->end, std::move(slices)});
  }
  if (owned(b)) take(bucket, own, count);
  else send(b % members_, message);
  if (!checked) return;
  message.kind = "check";
  for (const int checker : audit_->roles().checkers)
    if (checker != me_) send(checker, message);
  if (audit_->checks()) take(checked_, std::move(own), count);
}

void Exchange::take(Bucket& bucket, std::vector<Subtree> roots, int64_t count) {
  for (const Subtree& root : roots) bucket.leaves += root.end - root.begin;
  bucket.count += count;
  std::move(roots.begin(), roots.end(), std::back_inserter(bucket.roots));
}

bool Exchange::takes(const std::string& kind) {
  constexpr const char* kKinds[] = {"contribution", "result", "part", "trailer", "check", "word", "roots"};
  return std::find(std::begin(kKinds), std::end(kKinds), kind) != std::end(kKinds);
}

std::string Exchange::receive(const Message& message, const Send& send) {
  try {
    if (message.kind == "contribution") {
      const int b = message.body.at("bucket").get<int>();
      if (b < 0 || b >= bucket_count() || !owned(b)) return fmt::format("bucket {} is not mine", b);
      return receive_contribution(message, state_[static_cast<size_t>(b)]);
    }
    if (message.kind == "check") {
      if (!audit_ || !audit_->checks() || message.body.at("bucket") != audit_->roles().bucket)
        return "a check that is not expected";
      return receive_contribution(message, checked_);
    }
    if (message.kind == "word") return audit_ ? audit_->hear(message) : "a word that is not expected";
    if (message.kind == "roots") return receive_roots(message);
    if (message.kind == "result") return receive_result(message);
    if (message.kind == "part") return receive_part(message, send);
    if (message.kind == "trailer") return receive_trailer(message);
    return "unknown kind";
  } catch (const std::exception& error) {  // a body that is not what it should be
    return reason_of(error);
  }
}

std::string Exchange::receive_contribution(const Message& message, Bucket& bucket) {
  const int b = message.body.at("bucket").get<int>();
  const size_t slices = buckets_->slices(b).size();
  std::vector<Subtree> roots;
  size_t at = 0;
  for (const Json& root : message.body.at("roots")) {
    Subtree subtree{root.at(0).get<int>(), root.at(1).get<int>(), {}};
    if (!is_node(subtree.begin, subtree.end, vranks_)) return "a root is no node of the tree";
    for (const Subtree& other : bucket.roots)
      if (subtree.begin < other.end && other.begin < subtree.end) return "a leaf came twice";
    if (root.at(2).get<bool>()) {
      if (at + slices > message.blobs.size()) return "blobs are missing";
      const std::span<const Blob> blobs(message.blobs.data() + at, slices);
      if (!buckets_->fits(b, blobs)) return "a blob has another size";
      for (const Blob& blob : blobs) subtree.values.push_back(tensor_of(blob));
      at += slices;
    }
    roots.push_back(std::move(subtree));
  }
  take(bucket, std::move(roots), message.body.at("count").get<int64_t>());
  return "";
}

std::string Exchange::receive_result(const Message& message) {
  const int b = message.body.at("bucket").get<int>();
  if (b < 0 || b >= bucket_count() || owned(b)) return fmt::format("bucket {} is not expected", b);
  Bucket& bucket = state_[static_cast<size_t>(b)];
  if (bucket.done) return "";
  if (message.body.at("present").get<bool>()) {
    if (!buckets_->fits(b, message.blobs)) return "a blob has another size";
    std::vector<Tensor> slices;
    for (const Blob& blob : message.blobs) slices.push_back(tensor_of(blob));
    place(b, std::move(slices));
  }
  bucket.done = true;
  return "";
}

std::string Exchange::receive_part(const Message& message, const Send& send) {
  const int member = message.body.at("member").get<int>();
  if (me_ != 0 || member <= 0 || member >= members_) return "a part that is not expected";
  add_part(member, part_from(message.body), send);
  return "";
}

std::string Exchange::receive_trailer(const Message& message) {
  Trailer trailer = trailer_from(message.body);
  if (trailer.facts.size() != static_cast<size_t>(vranks_)) return "the trailer has another number of virtual ranks";
  if (!trailer_) trailer_ = std::move(trailer);
  return "";
}

void Exchange::add_part(int member, TrailerPart part, const Send& send) {
  parts_[member] = std::move(part);
  if (static_cast<int>(parts_.size()) < members_ || trailer_) return;
  Trailer t;
  t.agreed = INT64_MAX;
  t.facts.resize(static_cast<size_t>(vranks_));
  std::string states;
  bool differ = false;
  for (auto& [from, p] : parts_) {
    t.agreed = std::min(t.agreed, p.held);
    t.seconds.push_back(p.seconds);
    if (p.audit) t.audit.push_back(*p.audit);
    if (from == 0) t.state_digests = std::move(p.state_digests);
    for (auto& [vrank, facts] : p.facts)
      if (vrank >= 0 && vrank < vranks_) t.facts[static_cast<size_t>(vrank)] = std::move(facts);
    t.group = from == 0 || p.group == t.group ? p.group : 0;
    if (!t.pace) t.pace = p.pace;
    if (p.pace != t.pace) t.contradiction = fmt::format("member {} has made the step at another pace", from);
    if (!p.state) continue;
    if (!t.state) t.state = p.state;
    differ = differ || *t.state != *p.state;
    states += fmt::format("{}member {} has {}", states.empty() ? "" : ", ", from, p.state->hex());
  }
  if (differ) t.contradiction = states;
  parts_.clear();
  trailer_ = std::move(t);
  for (int other = 1; other < members_; ++other) send(other, {.kind = "trailer", .body = to_json(*trailer_)});
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
      const Message message = result_message(*buckets_, b, present ? values_ : std::vector<Tensor>());
      for (int other = 0; other < members_; ++other)
        if (other != me_) send(other, message);
    }
    return true;
  }
  return audit_ && audit_sum(send);
}

// All of its leaves have come, in order.
std::vector<Tensor> Exchange::add_up(int b, Bucket& bucket) {
  TreeFold fold(vranks_);
  for (Subtree& root : bucket.roots) fold.add(std::move(root));
  bucket.roots.clear();
  std::vector<Tensor> sum = fold.take_root();
  const std::span<const Slice> slices = buckets_->slices(b);
  for (size_t i = 0; i < sum.size(); ++i)
    if (slices[i].tensor < gradients_ && bucket.count > 0)
      sum[i] = scaled(std::move(sum[i]), 1.0 / static_cast<double>(bucket.count));
  if (spoil_ && !sum.empty()) spoil_(b, sum);
  return sum;
}

// What there is to do about the audited bucket besides; false if there is nothing now.
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
  const Message word = audit_->add(claim);
  for (int other = 0; other < members_ && audit_->speaks(); ++other)
    if (other != me_) send(other, word);
}

// A slice that is a whole tensor is taken as it is; others are copied to where they belong.
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
  if (sum_ || !trouble_.empty()) return "";  // whoever waits for the group has a deadline of its own
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

void give(const Buckets* buckets, const std::vector<Tensor>& values, const Trailer& trailer,
          const std::function<void(Message)>& send) {
  for (int b = 0; buckets && b < buckets->count(); ++b) send(result_message(*buckets, b, values));
  send({.kind = "trailer", .body = to_json(trailer)});
}

}  // namespace elinvar
