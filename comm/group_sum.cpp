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
      layout_(options_.buckets.shapes()),
      roots_(std::move(roots)),
      bucket_(options_.buckets.count()) {
  check(static_cast<int>(roots_.size()) == group_->members(), "[group] roots of {} members expected, got {}",
        group_->members(), roots_.size());
  int leaves = 0;
  bool present = false;
  for (const std::vector<GroupRoot>& of_member : roots_)
    for (const GroupRoot& root : of_member) {
      check(is_node(root.begin, root.end, options_.leaves), "[group] a root [{}, {}) is no node of a tree of {} leaves",
            root.begin, root.end, options_.leaves);
      leaves += root.end - root.begin;
      present = present || root.present;
    }
  check(leaves == options_.leaves, "[group] the members hold {} leaves of {}", leaves, options_.leaves);
  if (!present || bucket_ == 0) phase_ = Phase::done;
}

void GroupSum::put(int bucket, std::vector<Subtree> mine) {
  const std::vector<GroupRoot>& expected = roots_[static_cast<size_t>(group_->me())];
  check(bucket >= 0 && bucket < bucket_ && !mine_.contains(bucket), "[group] bucket {} was not expected", bucket);
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
    if (m == me) continue;
    for (const GroupRoot& root : roots_[static_cast<size_t>(m)]) {
      parts_.push_back({root.begin, root.end, {}});
      if (!root.present) continue;
      parts_.back().values = {Tensor::empty({last - first}, DType::f32, group_->device())};
      receives.push_back({parts_.back().values[0], m});
    }
  }
  group_->transfer(sends, receives);
}

// The group still holds the roots received from other members, so each addition goes to new memory and leaves them
// unchanged.
void GroupSum::add_up() {
  std::sort(parts_.begin(), parts_.end(), [](const Subtree& a, const Subtree& b) { return a.begin < b.begin; });
  TreeReducer reducer(options_.leaves);
  for (Subtree& part : parts_) reducer.add(std::move(part));
  parts_.clear();
  std::vector<Tensor> sum = reducer.take_root();
  const FlatLayout layout = layout_of(bucket_);
  const auto [first, last] = layout.shard(group_->me(), group_->members());
  if (!result_.defined()) result_ = Tensor::empty({layout_.elements()}, DType::f32, group_->device());
  const int64_t begin = layout_.begin(static_cast<size_t>(options_.buckets.slices(bucket_)[0].tensor));
  of_bucket_ = result_.slice(0, begin, begin + layout.elements());
  if (first == last) return;
  Tensor shard = of_bucket_.slice(0, first, last);
  copy(sum[0], shard);
  const int64_t scaled = std::min(last, layout_.begin(options_.scaled) - begin);
  if (options_.factor && first < scaled) {
    Tensor gradients = of_bucket_.slice(0, first, scaled);
    scale_into(gradients, *options_.factor);
  }
  if (!options_.spoil) return;
  std::vector<Tensor> damaged = {shard};
  options_.spoil(bucket_, damaged);
  if (!damaged[0].shares_storage(shard)) copy(damaged[0], shard);
}

void GroupSum::exchange_shards() {
  const FlatLayout layout = layout_of(bucket_);
  const int me = group_->me(), members = group_->members();
  const auto [first, last] = layout.shard(me, members);
  std::vector<GroupTensor> sends, receives;
  for (int m = 0; m < members; ++m) {
    if (m == me) continue;
    const auto [begin, end] = layout.shard(m, members);
    sends.push_back({of_bucket_.slice(0, first, last), m});
    receives.push_back({of_bucket_.slice(0, begin, end), m});
  }
  group_->transfer(sends, receives);
}

// A bucket begins once the previous one is queued on the device, which need not be done; the last phase waits for all.
GroupSum::State GroupSum::poll(std::string& why) {
  const SideQueue side(group_->device(), SideQueue::Of::transfers);
  while (phase_ != Phase::done) {
    if (phase_ == Phase::bucket) {
      const auto next = mine_.find(bucket_ - 1);
      if (next == mine_.end()) return State::pending;
      --bucket_;
      exchange_roots(next->second);
      mine_.erase(next);
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

std::vector<Tensor> GroupSum::values() const {
  return result_.defined() ? layout_.views(result_) : std::vector<Tensor>();
}

}  // namespace elinvar
