// The simulator: workers' processes.
#include "tests/elastic/simulator/simulation.h"

#include <algorithm>

namespace elinvar {

// It begins by asking what the job is.
void Simulation::add_worker() {
  if (!head()) return at(now_ + 0.05, [this] { add_worker(); });
  const PeerId peer = next_peer_++;
  auto p = std::make_unique<Process>();
  p->peer = peer;
  p->far = pick(2) == 1;
  p->sees_directory = uniform(0, 1) < 0.7;
  equip(*p);
  p->gradient_seconds =
      workers_.size() < s_.gradient_seconds.size() ? s_.gradient_seconds[workers_.size()] : uniform(0.01, 0.1);
  const Arrangement job = described();
  p->zero = job.zero;
  std::optional<TensorParts> parts = parts_;
  if (parts) parts->unsharded = job.replica() > 1;
  p->member = std::make_unique<Member>(MemberOptions{
      .self = peer,
      .endpoint = "sim",
      .vranks = s_.vranks,
      .steps = s_.steps,
      .bucket_elements = divided() && s_.seed % 4 < 2 ? 1 : kBucketElements,
      .sharding = sharding(job.zero),
      .parts = parts,
      .checkpoint_every = kCheckpointEvery,
      .state_digest_every = kDigestEvery,
      .scaling = scaling_,
      .audit = audit_,
      .groups = p->nccl.has_value(),
      .report_every = peer % 2 == 0 ? 1 : 8,
      .spoil = [this, peer](int64_t step, int bucket, auto& sums) { spoil(*workers_.at(peer), step, bucket, sums); }});
  log(fmt::format("worker {} starts with {}{}", peer, to_string(job),
                  p->sees_directory ? "" : ", without the directory"));
  workers_[peer] = std::move(p);
  join(peer);
  heartbeat(peer);
}

// The worker asks the newest coordinator; a person tries again until there is one.
void Simulation::join(PeerId peer) {
  at(now_ + uniform(0.01, 0.1), [this, peer] {
    Process& p = *workers_.at(peer);
    if (!p.alive || p.watch) return;
    if (head()) follow(p, head()->term);
    else join(peer);
  });
}

void Simulation::follow(Process& p, int64_t term) {
  if (!p.watch) {
    WatchOptions options = kWatch;
    options.arrival = heads_.at(term)->asked++;
    p.watch.emplace(options, term, now_);
  }
  p.watch->follow(term, now_);
  introduce(p, term);
}

void Simulation::introduce(Process& p, int64_t term) {
  const PeerId coordinator = heads_.at(term)->peer;
  connected_.insert({p.peer, coordinator});
  // The coordinator is dead.
  if (!heads_.at(term)->alive) at(now_ + 0.01, [this, peer = p.peer, coordinator] { lose(peer, coordinator); });
  p.member->introduce(
      coordinator,
      {.endpoint = "sim", .zero = p.zero, .shards = buckets_.count(), .nccl = p.nccl.value_or(NcclSupport{})});
  flush(p);
}

bool Simulation::sees_directory(const Process& p) const {
  return p.sees_directory && (now_ >= whole_from_ || directory_cut_ == 0 || (directory_cut_ == 2) == p.far);
}

void Simulation::heartbeat(PeerId peer) {
  at(now_ + kHeartbeat, [this, peer] {
    Process& p = *workers_.at(peer);
    if (!p.alive) return;
    if (now_ >= p.stalled_until) {
      const Work work = p.busy ? Work{.what = "work", .lasts = now_ - p.busy_since, .usual = 0.05}
                               : Work{.idle = now_ - p.idle_since, .misses = p.member->missing()};
      p.member->heartbeat(
          {.work = work,
           .segment_seconds = p.member->layout().known() ? segments_.seconds : std::vector<double>(),  // measured then
           .answer = !p.watch || p.watch->asks(now_)});
      flush(p);
      if (p.alive && p.watch && p.watch->out_of_touch(now_)) seek(p);
    }
    heartbeat(peer);
  });
}

void Simulation::seek(Process& p) {
  std::optional<Watch::Observation> observation;
  const int64_t newest = heads_.rbegin()->first;
  const int members = records_.empty() ? 0 : static_cast<int>(records_.rbegin()->second.members.size());
  if (sees_directory(p)) observation = Watch::Observation{newest, beats_[newest], members};
  const Watch::Decision decision = p.watch->decide(observation, p.member->position().index, now_);
  result_.abandoned += decision.what == Watch::Do::leave && observation;
  if (decision.what == Watch::Do::leave) return die(p, "without a coordinator leaves");
  if (decision.what == Watch::Do::reconnect) {
    introduce(p, p.watch->term());
    if (p.alive && p.saved) send(p.peer, p.member->position().coordinator, *p.saved);
    return;
  }
  if (decision.what == Watch::Do::follow) return follow(p, newest);
  if (decision.what != Watch::Do::take_over) return;
  log(fmt::format("worker {} takes over from term {}: {}", p.peer, newest, decision.reason));
  at(now_ + uniform(0.05, 0.5), [this, newest] {
    if (heads_.rbegin()->first == newest) start_coordinator();
  });
}

void Simulation::flush(Process& p) {
  act(p.peer, p.member->outbox().take());
  serve_groups(p);
  give_wanted(p);
  give_parameters(p);
  const std::vector<StatePart> parts = p.replays ? std::vector<StatePart>() : p.member->transfers().take_parts();
  for (const StatePart& part : parts) {
    if (p.form() != form_of(part.zero))
      violate("worker {} copies the state after step {} as with zero={}, but holds it as with zero={}", p.peer,
              part.step, part.zero, p.zero);
    if (part.move) {
      move_shards(p, part);
      continue;
    }
    check_slots(p, p.form() == HeldForm::whole ? all_buckets() : part.buckets, part.step);
    if (p.corrupt && part.to != 0) return end_what_lasts(p);
    if (!p.corrupt && p.state != state_after(p, part.step))
      violate("worker {} copies another state than that of step {}", p.peer, part.step);
    if (s_.adaptive && part.scaling_state != reference(p).made(std::min(part.step, reference(p).steps())))
      violate("worker {} copies another scaling state than that of step {}", p.peer, part.step);
    Message m{.generation = p.member->position().number(), .step = part.step, .payload = messages::Saved{}};
    if (part.to == 0) {
      const Digest state{p.state, 0};
      m.payload = messages::Saved{.part = part.part,
                                  .parts = part.parts,
                                  .digest = state,
                                  .state = part.attested ? std::optional(state) : std::nullopt};
      messages::Saved saved = *m.as<messages::Saved>();
      saved.digests[kForm] = std::to_string(static_cast<int>(p.form()));
      for (const int bucket : part.buckets) saved.digests[std::to_string(bucket)] = "";
      m.payload = saved;
    } else {
      m.payload = messages::StatePieces{
          .part = part.part,
          .parts = part.parts,
          .attempt = part.attempt,
          .last = true,
          .digests = {{"state and history", {p.state, p.history}}, {kForm, {static_cast<uint64_t>(p.form()), 0}}},
          .scaling_state = part.scaling_state,
          .end = s_.adaptive ? part.end : std::nullopt,
          .facts = part.facts};
    }
    deliver_part(p.peer, part.to, uniform(0.001, 0.1), m);
  }
  if (p.member->outcome() && p.alive) {
    if (p.member->outcome()->what == "refused" || p.member->outcome()->what == "expelled")
      log(fmt::format("{}: {}", p.peer, p.member->outcome()->reason));
    p.left = p.member->outcome()->what == "left";
    if (p.member->outcome()->again && !p.hung && s_.joins) at(now_ + uniform(0.5, 1.5), [this] { add_worker(); });
    die(p, p.member->outcome()->what);
  }
}

// Writing or sending a part takes a while.
void Simulation::deliver_part(PeerId peer, PeerId to, double delay, const Message& m) {
  at(now_ + delay, [this, peer, to, m] {
    Process& from = *workers_.at(peer);
    if (!from.alive && !from.left) return;  // a leaving worker finishes what it writes
    if (now_ < from.stalled_until) return deliver_part(peer, to, from.stalled_until - now_ + 1e-4, m);
    // Steps are counted anew from a checkpoint if a part of the state is lost.
    const auto age = [](const Message& saved) { return std::pair(saved.generation, saved.step); };
    if (to == 0 && (!from.saved || age(*from.saved) <= age(m))) from.saved = m;
    send(peer, to == 0 ? from.member->position().coordinator : to, m);
  });
}

// --- The main thread: the training loop.

// Runs `what` after a delay, or later if the worker is stopped; never if the worker is gone by then.
void Simulation::later(Process& p, double delay, std::function<void(Process&)> what) {
  if (!p.busy) p.busy_since = now_;
  p.busy = true;
  at(now_ + delay, [this, peer = p.peer, what = std::move(what)] {
    Process& q = *workers_.at(peer);
    if (!q.alive || q.hung) return;
    if (now_ < q.stalled_until) return later(q, q.stalled_until - now_ + 1e-4, what);
    q.busy = false;
    q.idle_since = now_;
    what(q);
    flush(q);
    if (q.alive) advance(q);
  });
}

// Runs the training loop as far as it can go now.
void Simulation::advance(Process& p) {
  if (!p.alive || p.busy || now_ < p.stalled_until) return;
  Member& m = *p.member;
  if (m.position().active() && !p.corrupt && p.state != state_after(p, m.position().step))
    violate("worker {} has another state after step {}", p.peer, m.position().step);
  check_form(p);
  if (p.updating) return take_values(p);
  if (p.residence && p.residence->awaits) {
    enter(p);
    if (!p.alive || p.busy || p.residence) return;  // otherwise the step is over
  }
  if (p.together && !go_on_together(p)) return;
  switch (m.reduce()) {
    case Member::Progress::complete:
      flush(p);
      return later(p, uniform(0.001, 0.02), [this](Process& q) { update(q); });
    case Member::Progress::waiting:
      flush(p);
      return wait_for_group(p);
    case Member::Progress::abandoned:
      break;
  }
  const Member::Next next = m.next();
  flush(p);
  if (!p.alive) return;
  if (next == Member::Next::load) return load(p);
  if (next == Member::Next::replay) return replay(p);
  if (next == Member::Next::layout) {
    return later(p, 0.05, [this](Process& q) { learn_layout(q); });
  }
  if (next == Member::Next::copy) {
    learn_layout(p);
    if (m.reduce() == Member::Progress::complete) later(p, uniform(0.001, 0.02), [this](Process& q) { update(q); });
    return;
  }
  if (next != Member::Next::gradients) return;
  if (p.corrupt && hides_damage(p)) return end_what_lasts(p);
  const std::vector<int> todo = m.gradients().todo();
  if (!todo.empty()) {
    learn_layout(p);
    if (p.form() == HeldForm::sliced && !m.parameter_fetch().going()) m.parameter_fetch().begin();
    const StepGradients::Begun begun = m.gradients().begun(todo[0]);
    if (begun.together) return begin_rank(p, todo[0]);
    if (p.together && take_digests(p)) return;
    return compute_alone(p, todo[0], begun);
  }
  if (p.together && take_digests(p)) return;
  p.together.reset();
  p.residence.reset();
  learn_layout(p);
  std::optional<Digest> state;
  if (m.gradients().digest_due()) {
    const int64_t made = std::min(m.position().step, m.position().steps);
    check_slots(p, m.shards().digested(made), made);
    state = Digest{p.state, mix(static_cast<uint64_t>(m.scaling().made().samples * 1000 + m.scaling().made().batch))};
  }
  goes(p);
  m.gradients().contribute(state);
  flush(p);
  later(p, 0, [](Process&) {});
}

void Simulation::compute_alone(Process& p, int vrank, const StepGradients::Begun& begun) {
  const MemberPosition& at = p.member->position();
  const int64_t step = at.step;
  const bool last = at.last();
  const ScalingState scaling_state = p.member->scaling().current();
  const bool opens = p.member->gradients().opens(vrank) && pick(4) > 0;
  const auto computed = [=, this](Process& q) {
    RankGradient gradient = last ? RankGradient{} : compute(q, step, vrank, scaling_state);
    if (named(step, vrank) && !gradient.gradients.empty())
      gradient.facts.gradient = digest_in_order(gradient.gradients, gradient.batch_statistics).digest;
    gradient.facts.attached = attached(q.state, step, vrank);
    StepGradients& gradients = q.member->gradients();
    if (gradients.stale(vrank, begun)) {
      ++result_.stale_alone;
      return;
    }
    if (!opens || gradient.gradients.empty()) return gradients.add(step, vrank, gradient, q.gradient_seconds);
    const bool opens_now = gradients.opens(vrank);
    if (opens_now) goes(q);
    gradients.open(step, vrank, gradient.facts.count, gradient.batch_statistics);
    q.open = true;
    ++result_.opened;
    if (kills_beside_open_) kill_beside(q);
    const size_t left = gradient.gradients.size();
    put(q, {step, vrank, begun, std::move(gradient), opens_now && gradients.by_rank()}, left);
  };
  p.residence.reset();
  if (p.form() == HeldForm::sliced && (last || has_samples(p, step, vrank, scaling_state)))
    begin_segments(p, /*scores=*/last);
  const size_t entered = p.residence ? (opens ? p.residence->forward : p.residence->order.size()) : 0;
  enter_segments(p, entered, [=, this](Process& q) { later(q, q.gradient_seconds * uniform(0.8, 1.2), computed); });
}

void Simulation::learn_layout(Process& p) {
  for (int v = 0; !p.member->layout().known(); ++v) {
    const RankGradient gradient = any_gradient(p.state, v);
    if (!gradient.gradients.empty()) p.member->learn_layout(gradient);
  }
}

// Puts the remaining `left` gradients one after another.
void Simulation::put(Process& p, const PuttingGradient& putting, size_t left) {
  if (p.member->position().fenced()) ++result_.interrupted;
  StepGradients& gradients = p.member->gradients();
  const bool stale = gradients.stale(putting.vrank, putting.begun);
  if (left == 0) {
    p.open = false;
    result_.stale_alone += stale;
    if (stale) return;
    const RankGradient& gradient = putting.gradient;
    if (!putting.passes) return gradients.add(putting.step, putting.vrank, gradient, p.gradient_seconds);
    const std::optional<Digest> digest = digest_of(gradient);
    return gradients.close(putting.step, putting.vrank, {.facts = gradient.facts, .digest = digest},
                           p.gradient_seconds);
  }
  const size_t entered = p.residence ? p.residence->entered_for(parts_->gradients[left - 1].segment) : 0;
  enter_segments(p, entered, [=, this](Process& q) { put_one(q, putting, left); });
}

void Simulation::put_one(Process& p, const PuttingGradient& putting, size_t left) {
  later(p, p.gradient_seconds * uniform(0.2, 0.4), [=, this](Process& q) {
    if (!q.member->gradients().stale(putting.vrank, putting.begun))
      q.member->gradients().put(static_cast<int>(left) - 1, putting.gradient.gradients[left - 1]);
    while (pick(2) > 0 && q.member->reduction().work()) {
    }
    flush(q);
    put(q, putting, left - 1);
  });
}

void Simulation::update(Process& p) {
  const Reduced r = p.member->reduction().take_reduced();
  if (p.corrupt) violate("worker {} updates a state that was damaged", p.peer);
  if (!r.contradiction.empty()) violate("states differ: {}", r.contradiction);
  if (parts_) check_facts(p, p.member->position().step, r);
  const auto plane = planes_.find({r.generation, p.member->position().step});
  result_.in_group += plane != planes_.end() && plane->second.second;
  StepFacts facts{.state = r.state ? std::optional(Digest{r.state->high, 0}) : std::nullopt};
  const int64_t step = p.member->position().step;
  const std::optional<int64_t> steps = p.member->position().known_steps();
  if (s_.adaptive) facts.end = steps;
  if (!steps || step < *steps) {
    facts.digests = facts_text(r);
    facts.update = {.samples = r.samples, .seconds = r.seconds, .generation = r.generation};
    if (s_.adaptive) {
      agree(p, step, r.scaling_state);
      facts.update->batch_size = r.scaling_state.batch;
      facts.update->reduce_seconds = uniform(0, 0.2);
    }
    const double factor = s_.adaptive ? lr_factor(r.scaling_state, step, scaling_) : 1;
    if (r.shards) {
      p.updating.emplace(r, factor, std::move(facts));
      return update_shards(p);
    }
    if (p.form() != HeldForm::whole) violate("worker {} updates the whole state, of which it has a part", p.peer);
    p.tiny.update(r, factor);
    p.state = p.tiny.digest();
    flip_state(p, step + 1);
  }
  p.member->advance(std::move(facts));
}

void Simulation::load(Process& p) {
  StateLoad load = p.member->catching_up().load();
  if (load.restore && *load.restore > 0 && !sees_directory(p))
    return later(p, 0.01, [load](Process& q) { q.member->catching_up().cannot_load(load); });
  p.corrupt = false;  // a damaged state is replaced
  if (load.restore) {
    p.history = references_.size() - 1;
    p.tiny = reference(p).states.at(static_cast<size_t>(*load.restore));
    p.zero = load.zero;
    load.scaling_state = reference(p).made(*load.restore);
  } else {
    const Digest& given = load.pieces.at(0).digests.at("state and history");
    p.history = given.low;
    p.zero = p.member->layout().zero();
    p.tiny = reference(p).states.at(std::min(static_cast<size_t>(load.step), reference(p).states.size() - 1));
    if (p.tiny.digest() != given.high) p.tiny.rest ^= 1;  // a damaged state was sent
    for (const messages::StatePieces& pieces : load.pieces)
      if (pieces.digests.at(kForm).high != static_cast<uint64_t>(p.form()))
        violate("worker {} gets a state that others hold in another form than with zero={}", p.peer, p.zero);
    if (p.form() != HeldForm::whole) p.tiny.slots.fill(0);
    if (p.form() == HeldForm::sliced) p.tiny.parameters.fill(0);
  }
  p.kept.clear();
  p.holds_all = load.restore.has_value();
  p.state = digest_of_state(p, load.restore.value_or(load.step));
  p.updating.reset();
  p.residence.reset();
  later(p, uniform(0.01, 0.2), [load](Process& q) { q.member->loaded(load); });
}

}  // namespace elinvar
