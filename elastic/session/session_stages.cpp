// A session: rank gradients that several members compute together. Passes through the stages of a pipeline, and digests
// of tensors that different members have.
#include <algorithm>
#include <cstring>
#include <utility>

#include "elastic/protocol/value_pieces.h"
#include "elastic/session/session_impl.h"
#include "tensor/base/activity.h"
#include "tensor/transfer.h"

namespace elinvar {

using Clock = std::chrono::steady_clock;

// All virtual ranks of the step, because no rank gradient is kept beyond a fence. The members of a replica attach what
// the loop shares in turn, stage by stage.
void Session::Impl::begin_pipeline() {
  const ModelReplica& own = member.replica();
  StepGradients& gradients = member.gradients();
  std::vector<int> vranks;
  for (const int vrank : gradients.todo())
    if (gradients.counts(vrank)) vranks.push_back(vrank);
  pipeline.emplace();
  const auto stages = static_cast<int>(own.stages().size());
  for (size_t i = 0; i < vranks.size(); ++i)
    if (static_cast<int>(i) % stages == own.place().stage) pipeline->attached.push_back(vranks[i]);
  if (!view.last) {
    pipeline->passes = own.passes(vranks);
    if (member.stage_exchange().in_group()) pipeline->transfers.emplace(*this, member.groups().agreed(), vranks);
    return;
  }
  for (const int vrank : vranks) gradients.add(view.number, vrank, {}, 0);  // there is nothing to compute
}

Session::Task* Session::Impl::next_pass() {
  if (!member.stage_exchange().going()) throw StepOver();
  Pipeline& p = *pipeline;
  if (p.running != nullptr) std::exchange(p.running, nullptr)->end_pass();
  if (p.done < p.passes.size()) {
    const PipelinePass& pass = p.passes[p.done++];
    const auto [entry, first] = p.tasks.try_emplace(pass.vrank, *this, pass.vrank);
    const bool last = std::none_of(p.passes.begin() + static_cast<std::ptrdiff_t>(p.done), p.passes.end(),
                                   [&](const PipelinePass& later) { return later.vrank == pass.vrank; });
    if (first) die(Fault::Point::forward, view.number);
    p.running = &entry->second;
    p.running->begin_pass(pass, last);
    work.at("a rank gradient", now());
    return p.running;
  }
  const size_t attached = p.done - p.passes.size();
  if (attached == p.attached.size()) return nullptr;
  ++p.done;
  task.emplace(*this, p.attached[attached]);
  task->attach_only();
  return &*task;
}

// The gradient is computed; the members of the stage have yet to compute together what is attached to its facts.
void Session::Task::attach_only() {
  const Member& member = session_.member;
  counts_ = true;
  computes_ = false;
  begun_ = {member.position().number(), /*together=*/true};
  session_.replica.begin(member.replica(), member.position().index);
  session_.member.replica_exchange().begin(vrank_);
}

void Session::Task::begin_pass(const PipelinePass& pass, bool last) {
  const std::vector<PipelineRun>& runs = session_.member.replica().runs();
  order_ = pass;
  pass_ = {.segments = runs[static_cast<size_t>(pass.run)].segments, .backward = pass.backward, .last = last};
  attaches_ = false;
  session_.replica.begin(session_.member.replica(), session_.member.position().index);
  session_.member.replica_exchange().begin(vrank_);
  began_ = Clock::now();
}

void Session::Task::end_pass() {
  seconds_ += session_.replica.worked(Clock::now() - began_);
  session_.member.replica_exchange().end();
}

Session::PassValue Session::Task::receive(const StageExchange::Fits& fits) {
  Impl& s = session_;
  if (s.pipeline->transfers) {
    PassValue input = s.pipeline->transfers->take(order_, fits);
    exclude_waiting();
    return input;
  }
  const Activity activity("waiting for a stage");
  const Clock::time_point began = Clock::now();
  Lock lock(s.mutex);
  StageExchange& exchange = s.member.stage_exchange();
  std::optional<messages::BoundaryValue> value;
  s.wait_within_work(lock,
                     [&] { return s.member.outcome() || !exchange.going() || (value = exchange.take(order_, fits)); });
  if (!value) throw StepOver();
  began_ += Clock::now() - began;
  return {.value = joined(value->elements, value->shape, value->dtype), .random = static_cast<uint32_t>(value->random)};
}

void Session::Task::send(PassValue result) {
  Impl& s = session_;
  if (s.pipeline->transfers) {
    s.pipeline->transfers->give(order_, result);
    return exclude_waiting();
  }
  const Tensor value = Download(result.value.to_contiguous()).wait();
  messages::BoundaryValue told{.vrank = vrank_,
                               .run = order_.run,
                               .backward = order_.backward,
                               .shape = value.shape(),
                               .dtype = value.dtype(),
                               .random = result.random};
  append_pieces(told.elements, blob_of(value));
  const Lock lock(s.mutex);
  if (!s.member.stage_exchange().going()) throw StepOver();
  s.member.stage_exchange().send(std::move(told));
  s.flush();
}

void Session::Task::skip() {
  if (!session_.pipeline->transfers) return;
  const auto runs = static_cast<int>(session_.member.replica().runs().size());
  const int before = order_.backward ? order_.run + 1 : order_.run - 1;
  if (before >= 0 && before < runs)
    session_.pipeline->transfers->take(order_, [](const Shape& shape, DType) { return shape.numel() == 0; });
  session_.pipeline->transfers->give(order_, {});
  exclude_waiting();
}

void Session::Task::exclude_waiting() {
  began_ += std::chrono::duration_cast<Clock::duration>(session_.pipeline->transfers->take_waited());
}

// Sends the digests of the tensors that this member has to the others, of which it gets theirs in complete_digests().
void Session::Impl::share_digests(Undigested rank_gradient) {
  if (!member.stage_exchange().going()) return;
  std::string bytes;
  const std::vector<Digest>& tensors = rank_gradient.tensors;
  if (rank_gradient.facts.samples > 0)
    for (const int tensor : member.replica().tensors_of(member.position().index)) {
      const Digest digest =
          static_cast<size_t>(tensor) < tensors.size() ? tensors[static_cast<size_t>(tensor)] : Digest{};
      bytes.append(reinterpret_cast<const char*>(&digest), sizeof(digest));
    }
  member.stage_exchange().send(messages::GradientDigests{.vrank = rank_gradient.vrank,
                                                         .digests = blob_of(std::move(bytes)),
                                                         .loss_sum = rank_gradient.facts.loss_sum,
                                                         .correct = rank_gradient.facts.correct});
  undigested.push_back(std::move(rank_gradient));
}

void Session::Impl::complete_digests(Lock& lock) {
  const Activity activity("exchange of digests");
  StageExchange& exchange = member.stage_exchange();
  const ModelReplica& own = member.replica();
  for (Undigested& each : undigested) {
    const bool samples = each.facts.samples > 0;
    std::optional<std::map<int, messages::GradientDigests>> others;
    wait_within_work(lock, [&] {
      return member.outcome() || !exchange.going() || (others = exchange.take_digests(each.vrank, samples));
    });
    if (!others) throw StepOver();
    if (samples) each.tensors.resize(member.layout().buckets()->shapes().size());
    const std::vector<int> mine = own.tensors_of(member.position().index);
    for (const auto& [other, told] : *others) {
      const std::byte* next = told.digests.data;
      for (const int tensor : samples ? own.tensors_of(other) : std::vector<int>()) {
        if (!std::ranges::binary_search(mine, tensor))
          std::memcpy(&each.tensors[static_cast<size_t>(tensor)], next, sizeof(Digest));
        next += sizeof(Digest);
      }
      if (other == own.reporter()) {
        each.facts.loss_sum = told.loss_sum;
        each.facts.correct = told.correct;
      }
    }
    const std::optional<Digest> digest = digest_rank_gradient(each.facts, each.tensors, each.named, each.compared);
    member.gradients().complete(view.number, each.vrank, std::move(each.facts), digest);
  }
  undigested.clear();
}

}  // namespace elinvar
