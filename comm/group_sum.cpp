#include "comm/group_sum.h"

#include <algorithm>

#include "tensor/base/check.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/pointwise.h"
#include "tensor/side_queue.h"

namespace elinvar {
namespace {

int64_t aligned(int64_t n) { return (n + FlatLayout::kAlign - 1) / FlatLayout::kAlign * FlatLayout::kAlign; }

}  // namespace

FlatLayout::FlatLayout(std::span<const Shape> shapes) : shapes_(shapes.begin(), shapes.end()), begins_{0} {
  for (const Shape& shape : shapes_) begins_.push_back(begins_.back() + aligned(shape.numel()));
}

std::pair<int64_t, int64_t> FlatLayout::shard(int m, int members) const {
  const int64_t most = aligned((elements() + members - 1) / members);
  return {std::min(elements(), m * most), std::min(elements(), (m + 1) * most)};
}

// The padding between two tensors is zeroed, so that it can be added up with the rest.
Tensor FlatLayout::flatten(const std::vector<Tensor>& tensors) const {
  check(tensors.size() == shapes_.size(), "[group] {} tensors expected, got {}", shapes_.size(), tensors.size());
  Tensor flat = Tensor::zeros({elements()}, DType::f32, tensors.empty() ? Device{} : tensors[0].device());
  for (size_t i = 0; i < tensors.size(); ++i) {
    check(tensors[i].shape() == shapes_[i], "[group] tensor {}: shape {} expected, got {}", i, to_string(shapes_[i]),
          to_string(tensors[i].shape()));
    Tensor place = flat.slice(0, begin(i), begin(i) + tensors[i].numel());
    copy(tensors[i].reshape({tensors[i].numel()}), place);
  }
  return flat;
}

std::vector<Tensor> FlatLayout::views(const Tensor& flat) const {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < shapes_.size(); ++i)
    tensors.push_back(flat.slice(0, begin(i), begin(i) + shapes_[i].numel()).reshape(shapes_[i]));
  return tensors;
}

GroupSum::GroupSum(std::shared_ptr<GpuGroup> group, Options options, std::vector<std::vector<GroupRoot>> roots)
    : group_(std::move(group)),
      options_(std::move(options)),
      roots_(std::move(roots)),
      bucket_(options_.buckets.count()) {
  check(static_cast<int>(roots_.size()) == group_->members(), "[group] roots of {} members expected, got {}",
        group_->members(), roots_.size());
  bool present = false;
  for (const std::vector<GroupRoot>& of_member : roots_)
    for (const GroupRoot& root : of_member) {
      check(is_node(root.begin, root.end, options_.leaves), "[group] a root [{}, {}) is no node of a tree of {} leaves",
            root.begin, root.end, options_.leaves);
      present = present || root.present;
    }
  for (int bucket = 0; bucket < bucket_; ++bucket) {
    int leaves = 0;
    for (int m = 0; m < group_->members(); ++m)
      for (const GroupRoot& root : roots_[static_cast<size_t>(m)])
        leaves += contributes(m, bucket) ? root.end - root.begin : 0;
    check(leaves == options_.leaves, "[group] the members hold {} leaves of {} in bucket {}", leaves, options_.leaves,
          bucket);
  }
  if (!present || bucket_ == 0) phase_ = Phase::done;
  // put() lets the transfers wait for the stream's last use of their memory. A member that contributes nothing does not
  // call it.
  bool puts = false;
  for (int bucket = 0; bucket < bucket_; ++bucket) puts = puts || contributes(group_->me(), bucket);
  if (!puts) SideQueue(group_->device(), SideQueue::Of::transfers).follow();
}

void GroupSum::put(int bucket, std::vector<Subtree> mine) {
  const std::vector<GroupRoot>& expected = roots_[static_cast<size_t>(group_->me())];
  check(bucket >= 0 && bucket < bucket_ && !mine_.contains(bucket) && contributes(group_->me(), bucket),
        "[group] bucket {} was not expected", bucket);
  check(mine.size() == expected.size(), "[group] {} roots expected, got {}", expected.size(), mine.size());
  for (size_t i = 0; i < mine.size(); ++i) {
    const Subtree& root = mine[i];
    check(root.begin == expected[i].begin && root.end == expected[i].end && root.values.empty() != expected[i].present,
          "[group] root {}: expected [{}, {}), {}, got [{}, {}) of {} tensors", i, expected[i].begin, expected[i].end,
          expected[i].present ? "present" : "absent", root.begin, root.end, root.values.size());
    for (const Tensor& t : root.values)
      check(t.device() == group_->device(), "[group] root {} lies on {}, expected on {}", i, to_string(t.device()),
            to_string(group_->device()));
  }
  SideQueue(group_->device(), SideQueue::Of::transfers).follow(SideQueue::Of::gradients);
  mine_.emplace(bucket, std::move(mine));
}

bool GroupSum::gets(int member, int bucket) const {
  if (static_cast<size_t>(bucket) >= options_.keepers.size()) return true;
  return std::ranges::find(options_.keepers[static_cast<size_t>(bucket)], member) !=
         options_.keepers[static_cast<size_t>(bucket)].end();
}

FlatLayout GroupSum::layout_of(int bucket) const {
  std::vector<Shape> shapes;
  for (const Slice& s : options_.buckets.slices(bucket)) shapes.push_back({s.end - s.begin});
  return FlatLayout(shapes);
}

void GroupSum::exchange_roots(const std::vector<Subtree>& mine) {
  const FlatLayout layout = layout_of(bucket_);
  const int me = group_->me(), members = group_->members();
  const auto [first, last] = layout.shard(me, members);
  std::vector<GroupTensor> sends, receives;
  for (const Subtree& root : mine) {
    parts_.push_back({root.begin, root.end, {}});
    if (root.values.empty()) continue;
    const Tensor flat = layout.flatten(root.values);
    parts_.back().values = {flat.slice(0, first, last)};
    for (int m = 0; m < members; ++m) {
      const auto [begin, end] = layout.shard(m, members);
      if (m != me) sends.push_back({flat.slice(0, begin, end), m});
    }
  }
  for (int m = 0; m < members; ++m) {
    if (m == me || !contributes(m, bucket_)) continue;
    for (const GroupRoot& root : roots_[static_cast<size_t>(m)]) {
      parts_.push_back({root.begin, root.end, {}});
      if (!root.present) continue;
      parts_.back().values = {Tensor::empty({last - first}, DType::f32, group_->device())};
      receives.push_back({parts_.back().values[0], m});
    }
  }
  group_->transfer(sends, receives);
}

void GroupSum::add_up() {
  std::sort(parts_.begin(), parts_.end(), [](const Subtree& a, const Subtree& b) { return a.begin < b.begin; });
  TreeReducer reducer(options_.leaves);
  for (Subtree& part : parts_) reducer.add(std::move(part));
  parts_.clear();
  std::vector<Tensor> sum = reducer.take_root();
  const FlatLayout layout = layout_of(bucket_);
  const auto [first, last] = layout.shard(group_->me(), group_->members());
  const auto empty = [&](int64_t elements) { return Tensor::empty({elements}, DType::f32, group_->device()); };
  if (gets(group_->me(), bucket_)) shard_ = (sums_[bucket_] = empty(layout.elements())).slice(0, first, last);
  else shard_ = empty(last - first);
  if (first == last) return;
  copy(sum[0], shard_);
  const auto is_scaled = [this](const Slice& s) { return static_cast<size_t>(s.tensor) < options_.scaled; };
  const auto gradients = std::ranges::count_if(options_.buckets.slices(bucket_), is_scaled);
  const int64_t scaled = std::min(last, layout.begin(static_cast<size_t>(gradients)));
  if (options_.factor && first < scaled) {
    Tensor part = shard_.slice(0, 0, scaled - first);
    scale_into(part, *options_.factor);
  }
  if (!options_.spoil) return;
  std::vector<Tensor> damaged = {shard_};
  options_.spoil(bucket_, damaged);
  if (!damaged[0].shares_storage(shard_)) copy(damaged[0], shard_);
}

void GroupSum::exchange_shards() {
  const FlatLayout layout = layout_of(bucket_);
  const int me = group_->me(), members = group_->members();
  const Tensor nothing = Tensor::empty({0}, DType::f32, group_->device());
  std::vector<GroupTensor> sends, receives;
  for (int m = 0; m < members; ++m) {
    if (m == me) continue;
    const auto [begin, end] = layout.shard(m, members);
    sends.push_back({gets(m, bucket_) ? shard_ : nothing, m});
    receives.push_back({gets(me, bucket_) ? sums_.at(bucket_).slice(0, begin, end) : nothing, m});
  }
  group_->transfer(sends, receives);
  shard_ = {};
}

// A bucket begins once the previous one is queued on the device, which need not be done; the last phase waits for all.
GroupSum::State GroupSum::poll(std::string& why) {
  const SideQueue side(group_->device(), SideQueue::Of::transfers);
  while (phase_ != Phase::done) {
    if (phase_ == Phase::bucket) {
      const bool own = contributes(group_->me(), bucket_ - 1);
      if (own && !mine_.contains(bucket_ - 1)) return State::pending;
      --bucket_;
      exchange_roots(own ? std::move(mine_.extract(bucket_).mapped()) : std::vector<Subtree>());
      phase_ = Phase::roots;
    }
    if (const State state = group_->poll(why); state != State::done) return state;
    if (phase_ == Phase::device) {
      if (!group_->carried()) return State::pending;
      phase_ = Phase::done;
    } else if (phase_ == Phase::roots) {
      add_up();
      exchange_shards();
      phase_ = Phase::shards;
    } else {
      phase_ = bucket_ > 0 ? Phase::bucket : Phase::device;
    }
    ++progress_;
  }
  return State::done;
}

std::map<int, std::vector<Tensor>> GroupSum::sums() const {
  std::map<int, std::vector<Tensor>> sums;
  for (const auto& [bucket, sum] : sums_) sums[bucket] = layout_of(bucket).views(sum);
  return sums;
}

}  // namespace elinvar
