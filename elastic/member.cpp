#include "elastic/member.h"

#include <algorithm>

#include "tensor/check.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostEarly = 1 << 16;  // messages for an exchange that is not there yet
constexpr int64_t kCopy = 0;            // the generation of results that go to somebody who only listens

Json to_json(const std::vector<Interval>& intervals) {
  Json json = Json::array();
  for (const Interval& i : intervals) json.push_back({i.begin, i.end});
  return json;
}

}  // namespace

Member::Member(const MemberOptions& options) : options_(options) {}

int Member::id() const { return active() ? generation_->members[static_cast<size_t>(me_)].id : 0; }

// --- The loop.

Member::Next Member::next() {
  if (outcome_) return Next::done;
  if (!loaded_) return restore_step_ || state_whole_ ? Next::load : Next::wait;
  if (waiting_for_release_ || (!active() && restore_step_)) return Next::wait;
  const bool finished = completed_ > options_.steps;
  if (!active() && !finished) listen();
  if (!active() && (finished || knows_layout())) tell_ready();
  if (finished) return Next::wait;
  if (!active()) return Next::copy;
  if (fenced()) return Next::wait;
  if (completed_ < generation_->first_step) {
    listen();
    return Next::copy;
  }
  if (generation_->stop) return Next::wait;
  return Next::leaves;
}

std::vector<int> Member::todo() const {
  std::vector<int> todo;
  if (!active() || completed_ > options_.steps || completed_ < generation_->first_step) return todo;
  for (const Interval& interval : generation_->share(me_, completed_))
    for (int v = interval.begin; v < interval.end; ++v)
      if (!facts_.contains(v)) todo.push_back(v);
  return todo;
}

bool Member::digest_due() const {
  return step_ > 0 &&
         (step_ == options_.steps || due(step_, options_.state_digest_every) || due(step_, options_.checkpoint_every));
}

void Member::learn_layout(const Leaf& leaf) {
  if (buckets_ || leaf.gradients.empty()) return;
  std::vector<Shape> shapes;
  for (const Tensor& t : leaf.gradients) shapes.push_back(t.shape());
  for (const Tensor& t : leaf.terms) shapes.push_back(t.shape());
  gradients_ = static_cast<int>(leaf.gradients.size());
  buckets_.emplace(std::move(shapes), options_.bucket_elements);
}

const Buckets* Member::buckets_now() const { return last() ? nullptr : &*buckets_; }

void Member::add(int64_t step, int vrank, Leaf leaf, double seconds) {
  if (step != completed_ || facts_.contains(vrank)) return;
  facts_.emplace(vrank, std::move(leaf.facts));
  if (seconds > 0) {
    leaf_seconds_ += seconds;
    ++leaf_count_;
  }
  std::vector<Tensor> values;
  if (!leaf.gradients.empty()) {
    learn_layout(leaf);
    values = std::move(leaf.gradients);
    std::move(leaf.terms.begin(), leaf.terms.end(), std::back_inserter(values));
  }
  for (TreeFold& fold : folds_)
    if (fold.subtrees().back().end == vrank) return fold.add(vrank, std::move(values));
  folds_.emplace_back(options_.vranks).add(vrank, std::move(values));
}

void Member::contribute(const std::optional<Digest>& state) {
  if (!active() || fenced() || completed_ < generation_->first_step || generation_->stop || !todo().empty()) return;
  const int members = static_cast<int>(generation_->members.size());
  std::vector<Subtree> roots;
  for (TreeFold& fold : folds_) roots.insert(roots.end(), fold.subtrees().begin(), fold.subtrees().end());
  std::sort(roots.begin(), roots.end(), [](const Subtree& a, const Subtree& b) { return a.begin < b.begin; });
  if (members == 1) folds_.clear();
  exchange_.emplace(options_.vranks, members, me_, buckets_now(), gradients_);
  const TrailerPart part{.held = proposed_.empty() ? generation_->number : proposed_.rbegin()->first,
                         .seconds = leaf_count_ > 0 ? leaf_seconds_ / leaf_count_ : 0,
                         .facts = facts_,
                         .state = state};
  exchange_->contribute(std::move(roots), part, sender());
  replay();
}

// The exchange of one who waits for a result that others have.
void Member::listen() {
  if (!knows_layout()) return;
  if (!exchange_) {
    exchange_.emplace(options_.vranks, 0, -1, buckets_now(), gradients_);
    replay();
  }
  if (active() && ahead_ != 0) {
    send(ahead_, {.kind = "fetch", .body = {{"endpoint", options_.endpoint}}});
    ahead_ = 0;
  }
}

void Member::tell_ready() {
  if (ready_told_ || !early_.empty()) return;
  ready_told_ = true;
  report({.kind = "ready", .body = {{"attempt", attempt_}}});
}

Member::Progress Member::reduce() {
  if (!exchange_) return Progress::abandoned;
  while (exchange_->work(sender())) {
  }
  if (!exchange_->complete()) return Progress::waiting;
  finish_reduction();
  return Progress::complete;
}

void Member::finish_reduction() {
  std::vector<Tensor> values = exchange_->values();
  Trailer trailer = exchange_->trailer();
  exchange_.reset();

  reduced_ = {};
  Hasher batches;
  double loss_sum = 0;
  for (const LeafFacts& facts : trailer.facts) {
    batches.add(facts.batch);
    loss_sum += facts.loss_sum;
    reduced_.count += facts.count;
    reduced_.correct += facts.correct;
    reduced_.samples += facts.samples;
    reduced_.leaves += facts.samples > 0;
    reduced_.attached.push_back(facts.attached);
  }
  reduced_.batch = batches.digest();
  reduced_.loss = loss_sum / static_cast<double>(reduced_.count);
  reduced_.state = trailer.state;
  reduced_.seconds = trailer.seconds;
  reduced_.gradients = values;
  if (!values.empty()) {
    reduced_.terms.assign(values.begin() + gradients_, values.end());
    reduced_.gradients.resize(static_cast<size_t>(gradients_));
  }
  contradiction_ = trailer.contradiction;

  const int64_t step = completed_++;
  facts_.clear();
  folds_.clear();
  leaf_seconds_ = 0;
  leaf_count_ = 0;
  std::erase_if(early_, [&](const Message& m) { return m.step < completed_; });

  const Buckets* buckets = step == options_.steps ? nullptr : &*buckets_;
  for (const auto& [peer, feed] : feeds_)
    if (feed.copies && feed.step <= step)
      give(buckets, values, trailer, [&, to = peer, attempt = feed.attempt](Message m) {
        m.generation = kCopy;
        m.step = step;
        m.body["attempt"] = attempt;
        actions_.push_back({Action::What::send, to, {}, std::move(m)});
      });
  agreed_ = std::max(agreed_, trailer.agreed);
  last_values_.clear();
  last_trailer_.reset();
  // Somebody may turn out to lack it after a death; nobody can who is not there.
  if (!active() || generation_->members.size() > 1 || !feeds_.empty() || !proposed_.empty()) {
    last_values_ = std::move(values);
    last_trailer_ = std::move(trailer);
  }
  enter_agreed();
}

Reduced Member::take_reduced() { return std::exchange(reduced_, {}); }

void Member::advance(const Json& facts) {
  invariant(step_ < completed_, "an update follows a reduction");
  const int64_t made = step_++;
  unacknowledged_.emplace_back(made, facts);
  if (me_ == 0) report({.kind = "facts", .step = made, .body = facts});
  const bool scheduled = due(step_, options_.checkpoint_every) || step_ == options_.steps;
  const bool asked = generation_ && generation_->checkpoint && step_ == generation_->first_step;
  if (asked || (scheduled && step_ <= options_.steps)) save();
  for (const auto& [peer, feed] : feeds_)
    if (feed.step == step_) give_part(peer, feed);
}

void Member::give_part(PeerId peer, const Feed& feed) {
  StatePart part{.step = feed.step,
                 .part = feed.part,
                 .parts = feed.parts,
                 .to = peer,
                 .attempt = feed.attempt,
                 .facts = Json::array()};
  if (feed.copies)
    for (const auto& [step, facts] : unacknowledged_)
      if (step < feed.step) part.facts.push_back({step, facts});
  parts_.push_back(std::move(part));
}

// The last reduction is of the trailer alone and changes no state: after it the boundary is still that of `steps`.
void Member::save() {
  if (!active()) return;
  parts_.push_back({.step = std::min(step_, options_.steps),
                    .part = me_,
                    .parts = static_cast<int>(generation_->members.size()),
                    .to = 0});
}

// --- The state of a learner.

Member::Load Member::take_load() {
  Load load{.restore = restore_step_,
            .step = restore_step_ ? *restore_step_ : state_step_,
            .attempt = attempt_,
            .messages = std::exchange(state_messages_, {})};
  state_whole_ = false;
  return load;
}

void Member::loaded(const Load& load) {
  if (active() || load.attempt != attempt_ || load.restore != restore_step_) return;
  completed_ = step_ = load.step;
  loaded_ = true;
  std::erase_if(early_, [&](const Message& m) { return m.step < completed_; });
  if (load.restore) {
    ready_told_ = true;
    report({.kind = "ready", .body = {{"attempt", 0}}});
  }
}

// --- The outside.

void Member::send(PeerId peer, Message message) {
  message.generation = generation();
  message.step = completed_;
  actions_.push_back({Action::What::send, peer, {}, std::move(message)});
}

void Member::report(Message message) {
  message.generation = generation();
  if (message.kind != "facts") message.step = completed_;
  if (coordinator_ != 0) actions_.push_back({Action::What::send, coordinator_, {}, std::move(message)});
}

Exchange::Send Member::sender() {
  return [this](int member, Message message) {
    send(generation_->members[static_cast<size_t>(member)].peer, std::move(message));
  };
}

void Member::connect_members(const Generation& generation) {
  for (const GenerationMember& m : generation.members)
    if (m.peer != options_.self) actions_.push_back({Action::What::connect, m.peer, m.endpoint, {}});
}

void Member::introduce(PeerId coordinator, Json about) {
  coordinator_ = coordinator;
  about["active"] = active();
  about["loaded"] = loaded_;
  about["promised"] = promised_;
  about["ready"] = ready_told_;
  if (active()) about["id"] = id();
  report({.kind = "hello", .body = std::move(about)});
  if (me_ == 0) report_facts();
}

// All that the coordinator has not confirmed: the leader that told of them may be gone.
void Member::report_facts() {
  for (const auto& [step, facts] : unacknowledged_) report({.kind = "facts", .step = step, .body = facts});
}

void Member::heartbeat(const Json& about) { report({.kind = "alive", .body = about}); }

void Member::drain() { report({.kind = "drain"}); }

void Member::lost(PeerId peer, const std::string& reason) {
  if (peer == coordinator_) {
    coordinator_ = 0;
    return;
  }
  feeds_.erase(peer);
  const bool fellow = generation_ && generation_->index_of(peer) >= 0;
  if (fellow || !active()) report({.kind = "suspect", .body = {{"peer", peer}, {"reason", reason}}});
}

void Member::receive(const Message& m) {
  const Json& body = m.body;
  if (m.kind == "contribution" || m.kind == "result" || m.kind == "part" || m.kind == "trailer") {
    receive_data(m);
  } else if (m.kind == "fetch") {
    if (!last_trailer_ || m.step != completed_ - 1) return;
    // It may be of a generation that this member does not know of yet.
    actions_.push_back({Action::What::connect, m.sender, body.at("endpoint").get<std::string>(), {}});
    give(m.step == options_.steps ? nullptr : &*buckets_, last_values_, *last_trailer_, [&](Message copy) {
      copy.generation = kCopy;
      copy.step = m.step;
      actions_.push_back({Action::What::send, m.sender, {}, std::move(copy)});
    });
  } else if (m.kind == "fence") {
    fenced_by(m);
  } else if (m.kind == "start") {
    start(body);
  } else if (m.kind == "propose") {
    propose(generation_from(body));
  } else if (m.kind == "welcome") {
    if (active() || !body.contains("restore")) return;
    const int64_t step = body.at("restore").get<int64_t>();
    if (restore_step_ != step) {  // whatever it has learnt, nobody goes on with
      restore_step_ = step;
      loaded_ = state_whole_ = ready_told_ = false;
      exchange_.reset();
      early_.clear();
    }
  } else if (m.kind == "refused") {
    outcome_ = {"refused", body.at("reason").get<std::string>()};
  } else if (m.kind == "release") {
    outcome_ = {body.at("what").get<std::string>(), body.at("reason").get<std::string>()};
  } else if (m.kind == "ack") {
    while (!unacknowledged_.empty() && unacknowledged_.front().first <= m.step) unacknowledged_.pop_front();
  } else if (m.kind == "feed") {
    feed(body.at("peer").get<PeerId>(), body.at("endpoint").get<std::string>(),
         {.step = m.step,
          .part = body.at("part").get<int>(),
          .parts = body.at("parts").get<int>(),
          .attempt = body.at("attempt").get<int64_t>(),
          .copies = body.at("copies").get<bool>()});
  } else if (m.kind == "unfeed") {
    feeds_.erase(body.at("peer").get<PeerId>());
  } else if (m.kind == "state") {
    receive_state(m);
  }
}

void Member::receive_state(const Message& m) {
  const int64_t attempt = m.body.at("attempt").get<int64_t>();
  if (active() || attempt < attempt_) return;
  if (attempt > attempt_) {
    attempt_ = attempt;
    state_step_ = m.step;
    state_messages_.clear();
    state_seen_.clear();
    loaded_ = ready_told_ = false;
    restore_step_.reset();
    exchange_.reset();
  }
  // What the feeder could not get rid of may be on nobody's file: now two know it.
  if (m.body.contains("facts") && !m.body["facts"].empty()) {
    unacknowledged_.clear();
    for (const Json& facts : m.body["facts"]) unacknowledged_.emplace_back(facts.at(0).get<int64_t>(), facts.at(1));
  }
  state_messages_.push_back(m);
  if (m.body.at("last").get<bool>()) state_seen_.insert(m.body.at("part").get<int>());
  state_whole_ = static_cast<int>(state_seen_.size()) == m.body.at("parts").get<int>();
}

void Member::receive_data(const Message& m) {
  const bool to_active = active() && !fenced() && completed_ >= generation_->first_step;
  const int64_t expected = to_active ? generation_->number : kCopy;
  // Copies for a learner belong to one attempt to feed it: those of an earlier one could lead past what its new feeder
  // knows, and past the trailer that makes it active.
  const int64_t attempt = m.generation == kCopy && !active() ? m.body.value("attempt", int64_t{0}) : attempt_;
  if (attempt < attempt_) return;
  if (exchange_ && m.step == completed_ && m.generation == expected && attempt == attempt_) {
    const std::string wrong = exchange_->receive(m, sender());
    if (!wrong.empty())
      report(
          {.kind = "suspect", .body = {{"peer", m.sender}, {"reason", "sent a malformed " + m.kind + ": " + wrong}}});
    return;
  }
  if (m.generation != kCopy && m.generation < std::max(promised_, generation())) return;
  if ((loaded_ && m.step < completed_) || early_.size() >= kMostEarly) return;
  early_.push_back(m);
}

void Member::replay() {
  std::vector<Message> early = std::exchange(early_, {});
  for (const Message& m : early) receive_data(m);
}

void Member::feed(PeerId peer, const std::string& endpoint, const Feed& feed) {
  // Of a boundary that has passed there is no copy to be had any more.
  if (!loaded_ || completed_ > feed.step) {
    report({.kind = "missed", .body = {{"peer", peer}}});
    return;
  }
  actions_.push_back({Action::What::connect, peer, endpoint, {}});
  feeds_[peer] = feed;
  if (step_ == feed.step) give_part(peer, feed);
}

void Member::fenced_by(const Message& m) {
  coordinator_ = m.sender;
  if (m.generation > promised_) {
    promised_ = m.generation;
    proposed_.clear();
    feeds_.clear();
    if (active()) exchange_.reset();
    std::erase_if(early_, [&](const Message& e) { return e.generation != kCopy && e.generation < promised_; });
  }
  Json body = {{"promised", promised_}, {"active", active()}, {"loaded", loaded_}, {"share", Json::array()}};
  if (active() && completed_ >= generation_->first_step && completed_ <= options_.steps)
    body["share"] = to_json(generation_->share(me_, completed_));
  report_facts();
  report({.kind = "fenced", .body = std::move(body)});
}

void Member::start(const Json& body) {
  Generation generation = generation_from(body.at("record"));
  if (generation.number < promised_ || generation.number <= this->generation()) return;
  if (generation.index_of(options_.self) < 0) {
    if (active()) outcome_ = {"expelled", "generation " + std::to_string(generation.number) + ": " + generation.reason};
    return;
  }
  const int64_t first = generation.first_step;
  if (!loaded_ || completed_ < first - 1 || completed_ > first) {
    outcome_ = {"expelled", "has another step than the others"};
    return;
  }
  exchange_.reset();
  agreed_ = std::max(agreed_, generation.number);
  if (completed_ < first) {
    facts_.clear();
    folds_.clear();
    for (const auto& [peer, completed] : body.at("completed").items())
      if (completed.get<int64_t>() == first) ahead_ = std::stoull(peer);
  }
  enter(std::move(generation), first);
}

void Member::propose(Generation generation) {
  if (generation.number <= std::max(promised_, this->generation())) return;
  connect_members(generation);
  if (!active() && generation.index_of(options_.self) < 0) return;
  proposed_[generation.number] = std::move(generation);
  enter_agreed();
}

void Member::enter_agreed() {
  const auto found = proposed_.find(agreed_);
  if (found != proposed_.end()) enter(Generation(found->second), completed_);
}

void Member::enter(Generation generation, int64_t first_step) {
  generation.first_step = first_step;
  exchange_.reset();  // of a learner that was listening
  generation_ = std::move(generation);
  proposed_.erase(proposed_.begin(), proposed_.upper_bound(generation_->number));
  promised_ = std::max(promised_, generation_->number);
  me_ = generation_->index_of(options_.self);
  waiting_for_release_ = me_ < 0;
  connect_members(*generation_);
  for (const GenerationMember& m : generation_->members) feeds_.erase(m.peer);
  std::erase_if(early_, [&](const Message& m) { return m.generation != kCopy && m.generation < promised_; });
  if (generation_->checkpoint && step_ == completed_ && step_ == first_step) save();
  report({.kind = "entered"});
  if (me_ == 0) report_facts();
}

std::vector<Action> Member::take_actions() { return std::exchange(actions_, {}); }
std::vector<StatePart> Member::take_parts() { return std::exchange(parts_, {}); }

}  // namespace elinvar
