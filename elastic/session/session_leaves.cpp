// A session: leaves, as the loop gives them, whole or gradient by gradient.
#include <algorithm>

#include "elastic/ledger/step_facts.h"
#include "elastic/session/session_impl.h"
#include "tensor/base/activity.h"
#include "tensor/ops/copies.h"
#include "tensor/side_queue.h"

namespace elinvar {

using Clock = std::chrono::steady_clock;

bool Session::Impl::flip(Fault::Flips what, int64_t step, std::span<Tensor> tensors, nlohmann::json about) {
  if (replay) return false;  // of steps that are past
  const auto bit = worker_faults.flips(what, member.position().id(), member.position().index == 0, step, tensors);
  if (!bit) return false;
  about.update({{"bit", *bit}, {"what", name_of(what)}});
  tell_fault("flip", step, std::move(about));
  return true;
}

void Session::Impl::tell_fault(const char* what, int64_t step, nlohmann::json fields) {
  fields.update({{"cause", "chaos"}, {"worker", member.position().id()}, {"step", step + 1}});
  transmit(member.position().coordinator,
           {.payload = messages::FaultInjected{.event = what, .about = std::move(fields)}});
}

std::optional<int> Session::next() {
  const Lock lock(impl_->mutex);
  const std::vector<int> todo = impl_->at_work().reduction().todo();
  if (impl_->listening || impl_->at_work().position().step != impl_->work_step || todo.empty()) return std::nullopt;
  impl_->leaf_began = Clock::now();
  impl_->work.at("a leaf", impl_->now());
  return todo[0];
}

bool Session::owns(int vrank) const {
  const Lock lock(impl_->mutex);
  return impl_->at_work().reduction().owns(vrank);
}

void Session::reads(int vrank, Tensor& input) {
  const Lock lock(impl_->mutex);
  impl_->flip(Fault::Flips::input, impl_->work_step, {&input, 1}, {{"vrank", vrank}});
}

void Session::add(int vrank, RankGradient leaf) {
  Impl& s = *impl_;
  Lock lock(s.mutex);
  const std::chrono::duration<double> seconds = Clock::now() - s.leaf_began;
  ++s.leaves;
  if (!s.opened.empty()) {
    SideQueue::join(s.opened[0].device(), SideQueue::Of::gradients);
    leaf.gradients = std::exchange(s.opened, {});
    leaf.batch_statistics = std::exchange(s.opened_statistics, {});
  }
  s.flip(Fault::Flips::leaf, s.work_step, leaf.gradients, {{"vrank", vrank}});
  const bool named = !s.replay && s.member.reduction().owns(vrank) &&
                     names_leaf(s.options.ledger, s.work_step, vrank, s.options.member.vranks);
  if (!leaf.gradients.empty() && named) {
    const Activity activity("digests");
    lock.unlock();
    digest_leaf(leaf, s.work_step, s.options.ledger, s.options.member.vranks);
    lock.lock();
  }
  if (s.at_work().audit().compares(s.work_step, vrank)) {
    lock.unlock();
    leaf.digest = digest_of(leaf);
    lock.lock();
  }
  s.work.at("", s.now());
  if (std::exchange(s.opened_passes, false) && !s.at_work().reduction().has_open())
    leaf.gradients = copies(leaf.gradients);
  s.at_work().reduction().add(s.work_step, vrank, std::move(leaf), seconds.count());
}

bool Session::keeps_leaves() const {
  const Lock lock(impl_->mutex);
  return impl_->at_work().reduction().keeps_leaves();
}

bool Session::let_leaves_go() {
  const Lock lock(impl_->mutex);
  return impl_->at_work().reduction().let_leaves_go();
}

bool Session::opens(int vrank) const {
  const Lock lock(impl_->mutex);
  return impl_->at_work().position().step == impl_->work_step && impl_->at_work().reduction().opens(vrank);
}

void Session::open(int vrank, int64_t count, std::vector<Tensor> batch_statistics, const Mark& since) {
  Impl& s = *impl_;
  const SideQueue side(batch_statistics.empty() ? Device{} : batch_statistics[0].device(), SideQueue::Of::gradients);
  side.follow(since);
  if (since) batch_statistics = copies(batch_statistics);
  const Lock lock(s.mutex);
  s.open_vrank = vrank;
  s.opened_statistics = batch_statistics;
  s.member.reduction().open(s.work_step, vrank, count, batch_statistics);
  s.flush();
}

// Buckets are added up here, between two kernels of the backward pass: a thread beside it would only take the
// processors from it. Those of a group of GPUs are given to it, as it gets on.
void Session::put(size_t gradient, Tensor value, const Mark& since) {
  Impl& s = *impl_;
  const Activity activity("reduction");
  const Clock::time_point began = Clock::now();
  const SideQueue side(value.device(), SideQueue::Of::gradients);
  side.follow(since);
  const Lock lock(s.mutex);
  s.flip(Fault::Flips::leaf, s.work_step, {&value, 1}, {{"vrank", s.open_vrank}});
  s.opened.resize(std::max(s.opened.size(), gradient + 1));
  s.opened[gradient] = value;
  s.opened_passes = since != nullptr;
  s.member.reduction().put(static_cast<int>(gradient), std::move(value), s.opened_passes);
  s.flush();
  while (s.member.reduction().work()) s.flush();
  s.leaf_began += Clock::now() - began;  // it is no part of what a leaf takes
}

}  // namespace elinvar
