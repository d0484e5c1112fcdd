#include "elastic/session/group_former.h"

#include <algorithm>

#include "tensor/base/threads.h"

namespace elinvar {

// The longest wait for members that still need something from a group that is over.
constexpr std::chrono::seconds kRetiring{2};
// The longest wait for a group to shrink. All members are present then: if one fails to take part, a new group is made
// soon.
constexpr std::chrono::duration<double> kShrinking{5};

GroupFormer::GroupFormer(std::shared_ptr<Nccl> nccl, Tells tells, std::chrono::duration<double> patience)
    : nccl_(std::move(nccl)), tells_(std::move(tells)), patience_(patience) {
  forms_ = start_thread("groups", [this](const std::stop_token& stop) { form_all(stop); });
  ends_ = start_thread("old groups", [this](const std::stop_token& stop) { end_all(stop); });
}

// The member that ends first may still be sending data that others wait for, so the last group is retired like the
// earlier ones.
GroupFormer::~GroupFormer() {
  forms_.request_stop();
  {
    const std::lock_guard lock(mutex_);
    give_up_.request_stop();
  }
  forms_.join();
  drop_before(INT64_MAX);
  ends_.request_stop();
  ends_.join();
}

void GroupFormer::form(const GroupRequest& request) {
  const std::lock_guard lock(mutex_);
  if (request.generation < oldest_ || (wanted_ && wanted_->generation > request.generation)) return;
  if (forming_ != 0 && forming_ <= request.generation) give_up_.request_stop();
  const auto let_go = [this](std::shared_ptr<GpuGroup>& group) {
    if (group) over_.push_back(std::move(group));
    group.reset();
  };
  let_go(parent_);
  if (const auto stale = formed_.find(request.generation); stale != formed_.end()) {
    let_go(stale->second);
    formed_.erase(stale);
  }
  if (request.from) {
    auto parent = formed_.extract(*request.from);
    if (!parent.empty()) parent_ = std::move(parent.mapped());
    if (request.gone.empty() && parent_) {
      formed_[request.generation] = std::exchange(parent_, nullptr);
      return;
    }
  }
  wanted_ = request;
  changed_.notify_all();
}

void GroupFormer::drop_before(int64_t generation, int64_t kept) {
  const std::lock_guard lock(mutex_);
  if (generation <= oldest_ && kept == kept_) return;
  oldest_ = std::max(oldest_, generation);
  kept_ = kept;
  if (wanted_ && wanted_->generation < oldest_) {
    wanted_.reset();
    if (parent_) over_.push_back(std::move(parent_));
    parent_.reset();
  }
  if (forming_ != 0 && forming_ < oldest_) give_up_.request_stop();
  for (auto it = formed_.begin(); it != formed_.end() && it->first < oldest_;) {
    if (it->first == kept && it->second->whole()) {
      ++it;
      continue;
    }
    over_.push_back(std::move(it->second));
    it = formed_.erase(it);
  }
  changed_.notify_all();
}

void GroupFormer::form_all(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return wanted_.has_value(); }) && !stop.stop_requested()) {
    const GroupRequest request = *wanted_;
    std::shared_ptr<GpuGroup> parent = std::exchange(parent_, nullptr);
    wanted_.reset();
    forming_ = request.generation;
    give_up_ = std::stop_source();
    lock.unlock();
    try {
      if (request.from) shrink_one(request, std::move(parent), give_up_.get_token());
      else form_one(request, give_up_.get_token());
    } catch (const std::exception& failure) {
      tells_.broke(request.generation, failure.what());
    }
    lock.lock();
    forming_ = 0;
  }
}

// Ends groups in the middle of a transfer first: until they are aborted, the device may wait for a member that is gone.
// When the thread is told to stop, it still ends the remaining groups.
void GroupFormer::end_all(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !over_.empty(); })) {
    const auto broken = std::find_if(over_.begin(), over_.end(), [](const auto& g) { return !g->whole(); });
    const auto next = broken != over_.end() ? broken : over_.begin();
    std::shared_ptr<GpuGroup> group = std::move(*next);
    over_.erase(next);
    lock.unlock();
    try {
      if (group->whole()) group->retire(kRetiring);
      else group->abort();
    } catch (const std::exception&) {  // the group is no longer used
    }
    group.reset();
    lock.lock();
  }
}

void GroupFormer::form_one(const GroupRequest& request, const std::stop_token& stop) {
  std::shared_ptr<GpuGroup> group;
  std::optional<std::string> failed;
  const auto attempt = [&](const auto& body) {
    try {
      body();
    } catch (const std::exception& failure) {
      failed = failure.what();
    }
  };
  std::optional<NcclId> id = request.id;
  if (!id) attempt([&] { id = nccl_->make_id(); });
  if (id && !request.id) tells_.named(request.generation, *id);
  if (id) attempt([&] { group = GpuGroup::form(*nccl_, *id, request.members, request.me, patience_, stop); });
  if (failed && !stop.stop_requested()) tells_.failed(request.generation, *failed);
  if (group) keep(request, std::move(group));
}

void GroupFormer::shrink_one(const GroupRequest& request, std::shared_ptr<GpuGroup> parent,
                             const std::stop_token& stop) {
  std::shared_ptr<GpuGroup> group;
  try {
    if (parent) group = parent->shrink(request.gone, std::min(patience_, kShrinking), stop);
  } catch (const std::exception&) {  // a new group is made, which reports a lasting error
  }
  if (parent) {
    const std::lock_guard lock(mutex_);
    over_.push_back(std::move(parent));
    changed_.notify_all();
  }
  if (group) return keep(request, std::move(group));
  if (!stop.stop_requested()) tells_.not_shrunk(request.generation);
}

void GroupFormer::keep(const GroupRequest& request, std::shared_ptr<GpuGroup> group) {
  {
    const std::lock_guard lock(mutex_);
    if (request.generation < oldest_ || (wanted_ && wanted_->generation == request.generation)) {
      over_.push_back(std::move(group));
      return changed_.notify_all();
    }
    formed_[request.generation] = group;
  }
  tells_.formed(request.generation, std::move(group));
}

}  // namespace elinvar
