#include "elastic/protocol/generation_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace elinvar {

using Json = nlohmann::json;
using Phase = JobState::Phase;
using State = Worker::State;

// Reduces a newcomer's share of its first step to this fraction. It begins that step later than the others, because the
// result of the previous step reaches it last.
constexpr double kFirstShare = 0.4;

namespace {

std::vector<PeerId> peers_of(const Generation& generation) {
  std::vector<PeerId> peers;
  for (const GenerationMember& m : generation.members) peers.push_back(m.peer);
  return peers;
}

}  // namespace

GenerationPlanner::GenerationPlanner(JobState& job, BatchScaling& scaling, GroupPlanner& groups,
                                     const FactsOnFile& facts, Seconds now)
    : job_(job),
      scaling_(scaling),
      groups_(groups),
      facts_(facts),
      starters_(job.options.initial_workers),
      start_until_(now + job.options.start_timeout),
      changed_(now) {}

void GenerationPlanner::ask_stop(const std::string& reason) {
  if (wishes_.stop.empty()) wishes_.stop = reason;
}

Generation GenerationPlanner::next(const std::vector<PeerId>& peers, const std::string& reason,
                                   const std::vector<PeerId>& joining) {
  Generation g{.number = job_.number + 1, .run = job_.options.run, .members = {}, .reason = reason};
  for (const PeerId peer : peers) {
    Worker& worker = job_.workers.at(peer);
    if (worker.id == 0) worker.id = job_.next_id++;
    g.members.push_back({.id = worker.id, .peer = peer, .endpoint = worker.endpoint, .share = {}, .first_share = {}});
  }
  std::sort(g.members.begin(), g.members.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  std::vector<double> speeds = speeds_of(g.members, job_.workers);
  const PlanLimits limits = job_.limits();
  const bool together = limits.replica.together();
  const std::vector<ReplicaPlace> places = deal_replicas(limits.replica, speeds);
  // From ZeRO's second stage on owners add up rank gradients as they come: members then take alternating ones, so that
  // siblings come together.
  const bool alternating = job_.arrangement.zero >= 2;
  const auto assigned = [&] {
    const std::vector<double> of_replicas = replica_speeds(limits.replica.shards, places, speeds);
    const size_t replicas = of_replicas.size();
    const auto shares = alternating ? assign_orphans(limits.vranks, {replicas, std::vector<Interval>()}, of_replicas)
                                    : assign(limits.vranks, of_replicas);
    return shares_of_members(places, shares);
  };
  const auto shares = assigned();
  for (size_t i = 0; i < speeds.size(); ++i)
    if (std::find(joining.begin(), joining.end(), g.members[i].peer) != joining.end()) speeds[i] *= kFirstShare;
  const auto first = assigned();
  for (size_t i = 0; i < shares.size(); ++i) {
    g.members[i].share = shares[i];
    g.members[i].first_share = first[i];
    if (together) g.members[i].place = places[i];
  }
  if (together) g.shards = limits.replica.shards;
  g.next_id = job_.next_id;
  g.arrangement = job_.arrangement;
  g.automatic = job_.automatic;
  if (job_.sharded) g.sharding = Sharding{.zero = job_.zero(), .keepers = keepers(g)};
  g.group = groups_.why_none(g).empty();
  g.scaling = scaling_.record(peers.size());
  return g;
}

// Members that are to leave keep nothing, unless all are.
BucketDeal GenerationPlanner::keepers(const Generation& g) const {
  BucketDeal deal{.copies = job_.copies()};
  for (const GenerationMember& m : g.members)
    if (!job_.workers.at(m.peer).draining) deal.ids.push_back(m.id);
  if (deal.ids.empty()) deal.ids = g.ids();
  return deal;
}

std::vector<int> GenerationPlanner::ids_of(const std::vector<PeerId>& peers) const {
  std::vector<int> ids;
  for (const PeerId peer : peers)
    if (const int id = job_.workers.at(peer).id; id != 0) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

bool GenerationPlanner::lost_state(const Recovery& recovery) const {
  if (!job_.sharded && recovery.sharding.whole) return false;
  if (recovery.sharding.whole) return recovery.restored.empty();
  int buckets = 0;
  for (const PeerId peer : recovery.members) buckets = std::max(buckets, job_.workers.at(peer).about.shards);
  const std::vector<int> providers = providers_of(recovery.sharding, buckets, ids_of(recovery.members));
  return std::find(providers.begin(), providers.end(), 0) != providers.end();
}

bool GenerationPlanner::create(const Generation& g) {
  job_.number = g.number;
  if (!job_.world.create(g)) return false;
  Json members = Json::array();
  for (const GenerationMember& m : g.members) members.push_back(m.id);
  Json fields = {{"number", g.number}, {"members", members}, {"reason", g.reason}};
  if (g.scaling && g.scaling->batch > 0) fields["batch_size"] = g.scaling->batch;
  if (g.group) fields["group"] = true;
  groups_.created(g);
  job_.world.event("generation", fields);
  return true;
}

// Handles a record that exists already.
FenceReason GenerationPlanner::superseded() {
  if (job_.world.superseded()) job_.superseded();
  else if (job_.phase != Phase::starting)
    return fmt::format("generation {} was still made by another coordinator", job_.number);
  return std::nullopt;
}

void GenerationPlanner::begin(const Generation& generation, Seconds now) {
  job_.current = generation;
  job_.phase = Phase::running;
  changed_ = now;
  reconsider();
}

// A choice for other members does not count any more.
void GenerationPlanner::reconsider() {
  if (job_.automatic) job_.wanted.reset();
}

FenceReason GenerationPlanner::start(Seconds now) {
  std::vector<PeerId> ready;
  int blind = 0;  // workers that wait to receive the state
  for (const auto& [peer, w] : job_.workers) {
    if (w.state == State::ready) ready.push_back(peer);
    else blind += w.blind;
  }
  const int have = static_cast<int>(ready.size()), least = job_.options.min_workers;
  if (blind > 0 && blind == static_cast<int>(job_.workers.size()) && now >= start_until_) {
    job_.end("failed", fmt::format("no worker sees the run directory, to begin with the state after step {} in it",
                                   job_.first_step));
    return std::nullopt;
  }
  const int starters = others_come_ ? starters_ : std::min(starters_, static_cast<int>(job_.workers.size()));
  const int wanted = now < start_until_ ? std::max(starters, least) : least;
  if (have == 0 || have + blind < wanted) return std::nullopt;
  if (have < least) return "too few workers see the run directory";
  Generation g = next(ready, "start");
  g.first_step = job_.first_step;
  if (g.sharding) g.sharding->holders.ids = g.ids();
  if (g.sharding) g.sharding->whole = true;
  if (g.sharding) g.sharding->zero_before = g.sharding->zero;
  if (g.scaling) g.scaling->scaling_state = scaling_.first_state();
  if (!create(g)) return superseded();
  begin(g, now);
  for (const PeerId peer : ready) {
    job_.workers.at(peer).state = State::member;
    job_.send(peer, messages::Start{.record = g}, g.number);
  }
  return std::nullopt;
}

void GenerationPlanner::wait_for_starters(int enough, bool others_come, Seconds now) {
  starters_ = enough;
  others_come_ = others_come;
  job_.phase = Phase::starting;
  job_.current.reset();
  start_until_ = now + job_.options.start_timeout;
}

FenceReason GenerationPlanner::recover(Recovery recovery, const std::optional<Trial>& trial, const std::string& reason,
                                       Seconds now) {
  if (recovery.end) job_.steps = *recovery.end;
  // An earlier coordinator may have made a generation that this one has not read, perhaps the first that shards the
  // state. A newcomer with the id of one of its members would be taken to have that member's state.
  if (recovery.held_with().value_or(0) > 0) job_.sharded = true;
  for (const int id : recovery.sharding.holders.ids) job_.next_id = std::max(job_.next_id, id + 1);
  Generation g = next(recovery.members, reason);
  g.number = job_.number;
  g.group_from = groups_.source_of_recovered(g);
  g.first_step = recovery.step;
  if (g.sharding) {
    g.sharding->whole = recovery.sharding.whole;
    g.sharding->zero_before = recovery.sharding.zero_before;
    g.sharding->holders = recovery.sharding.holders;
    if (g.sharding->whole) g.sharding->holders.ids = ids_of(recovery.restored);
  }
  if (g.scaling) g.scaling->scaling_state = recovery.scaling_state;
  if (recovery.scaling_state) scaling_.use(recovery.scaling_state->batch);
  g.trial = trial;
  g.stop = !trial && !wishes_.stop.empty();              // a state in doubt must not be saved
  g.checkpoint = g.stop || recovery.step >= job_.steps;  // a part of the last one may be lost
  if (g.shards == 0) {                                   // members of a replica keep no rank gradients
    std::vector<std::vector<Interval>> kept;
    for (const GenerationMember& m : g.members) kept.push_back(recovery.kept[m.peer]);
    const auto first = assign_orphans(job_.options.plan.vranks, std::move(kept), speeds_of(g.members, job_.workers));
    for (size_t i = 0; i < first.size(); ++i) g.members[i].first_share = first[i];
  }
  if (!create(g)) return superseded();
  begin(g, now);
  for (auto& [peer, w] : job_.workers) {
    w.work = {};
    if (g.index_of(peer) >= 0) w.state = State::member;
    else if (w.state == State::ready) w.state = State::joining;  // it came too late, and must catch up again
  }
  messages::Start start{.record = g};
  for (const auto& [peer, steps] : recovery.completed)  // those that can send their last result
    if (job_.workers.at(peer).fenced->keeps) start.completed[peer] = steps;
  for (const GenerationMember& m : g.members) job_.send(m.peer, start, g.number);
  return std::nullopt;
}

FenceReason GenerationPlanner::propose(Seconds now) {
  if (job_.phase != Phase::running || job_.proposal || facts_.last_told()) return std::nullopt;
  const Generation& current = *job_.current;
  if (current.stop || current.trial || !settled()) return std::nullopt;
  const bool may_reassign = now - changed_ >= job_.options.reassign_every;
  const std::optional<ArrangementChoice> other = due_arrangement();
  std::optional<Plan> plan;
  if (other) {
    rearrange(other->arrangement);
    plan = Plan{.members = peers_of(current), .joining = {}, .reason = "arrangement " + to_string(other->arrangement)};
    if (!other->reason.empty()) plan->reason += ": " + other->reason;
  } else {
    plan = elinvar::plan(current, job_.workers, wishes_, job_.limits(), may_reassign);
    if (!plan) want_better_arrangement();
  }
  std::optional<Scaled> scaled;
  if (plan && !plan->stop && (!plan->joining.empty() || plan->members.size() != current.members.size())) {
    scaled = scaling_.other_batch(plan->members.size(), /*larger=*/false);
  } else if (!plan && may_reassign) {
    // The last change may have prevented measurements, which are complete now.
    scaled = scaling_.other_batch(current.members.size(), /*larger=*/true);
    if (scaled) plan = Plan{.members = peers_of(current), .joining = {}, .reason = "other measurements"};
  }
  if (!plan) return std::nullopt;
  Generation g = next(plan->members, plan->reason, plan->joining);
  if (scaled) {
    g.scaling->batch = scaled->batch;
    g.reason += ", " + scaled->reason;
  }
  g.follows = current.number;
  if (g.sharding && current.sharding) {
    g.sharding->holders = current.sharding->keepers;
    g.sharding->zero_before = current.sharding->zero;
  } else if (g.sharding) {
    g.sharding->holders.ids = current.ids();
    g.sharding->whole = true;
    g.sharding->zero_before = 0;
  }
  g.group_from = groups_.source_of_planned(g);
  g.stop = plan->stop;
  g.checkpoint = plan->checkpoint;
  if (!create(g)) return superseded();
  if (g.stop) ask_stop("every worker leaves");
  wishes_.checkpoint = false;
  changed_ = now;
  job_.proposal = g;
  for (const PeerId peer : plan->joining) job_.send(peer, messages::Propose{g}, g.number);
  for (const GenerationMember& m : current.members) job_.send(m.peer, messages::Propose{g}, g.number);
  return std::nullopt;
}

// Looks for a better arrangement of the present members. A later proposal makes the change, once members can.
void GenerationPlanner::want_better_arrangement() {
  if (!job_.automatic || job_.wanted) return;
  job_.wanted = better_arrangement(job_.options.forecasts, static_cast<int>(job_.current->members.size()),
                                   job_.arrangement, job_.steps - job_.completed());
  if (!job_.wanted) return;
  if (!job_.why_not(job_.wanted->arrangement).empty()) return job_.wanted.reset();
  job_.world.event("arrange", {{"arrangement", to_string(job_.wanted->arrangement)}, {"reason", job_.wanted->reason}});
}

// Returns the arrangement that is wanted, once members can change to it. Stages wait until a worker has told how
// long each segment of the network takes. A change of what a worker holds waits until nobody is learning the state: a
// learner holds what the members held when it came.
std::optional<ArrangementChoice> GenerationPlanner::due_arrangement() const {
  if (!job_.wanted || (job_.wanted->arrangement.pp > 1 && job_.segments.seconds.empty())) return std::nullopt;
  if (!job_.changes_form()) return job_.wanted;
  for (const auto& [peer, w] : job_.workers)
    if (w.state == State::receiving || w.state == State::ready || (w.state == State::joining && w.welcomed))
      return std::nullopt;
  return job_.wanted;
}

void GenerationPlanner::rearrange(const Arrangement& arrangement) {
  job_.sharded = job_.zero_in(arrangement) > 0;
  job_.arrangement = arrangement;
  job_.wanted.reset();
}

// Returns whether the generation's keepers have their state (ZeRO), so that another generation may have other keepers.
// A member that has made a step of the generation has also made the update before it.
bool GenerationPlanner::settled() const { return !job_.sharded || job_.completed() > job_.current->first_step; }

void GenerationPlanner::switch_to_proposal(Seconds now) {
  const Generation before = *job_.current;
  job_.current = *job_.proposal;
  job_.proposal.reset();
  changed_ = now;
  reconsider();
  Generation& current = *job_.current;
  // The step of the switch: no member can be further than one step into it.
  int64_t first = INT64_MAX;
  for (const auto& [peer, w] : job_.workers)
    if (w.generation == current.number) first = std::min(first, w.completed);
  current.first_step = first;
  if (current.scaling && current.scaling->batch > 0) scaling_.use(current.scaling->batch);
  for (const GenerationMember& m : current.members) job_.workers.at(m.peer).state = State::member;
  for (const GenerationMember& m : before.members)
    if (current.index_of(m.peer) < 0) job_.workers.at(m.peer).state = State::leaving;
  job_.world.event("switched", {{"generation", current.number}, {"step", first}});
}

// A leaving worker may be the only one with a result that others lack, until all of them are in a generation without
// it. Then they have the result of its last step, and make the facts from that. With ZeRO newcomers may get the values
// of the last step's update from it, so it stays until they have made that update and thus a further step. After the
// last step of the run it holds a part of the last checkpoint, and stays to the end.
std::vector<PeerId> GenerationPlanner::released() const {
  std::vector<PeerId> leaving;
  if (job_.phase != Phase::running || job_.current->first_step > job_.steps || !settled()) return leaving;
  for (const GenerationMember& m : job_.current->members) {
    const auto worker = job_.workers.find(m.peer);
    if (worker == job_.workers.end() || worker->second.generation < job_.current->number) return leaving;
    if (worker->second.completed < job_.current->first_step) return leaving;
  }
  for (const auto& [peer, w] : job_.workers)
    if (w.state == State::leaving) leaving.push_back(peer);
  return leaving;
}

}  // namespace elinvar
