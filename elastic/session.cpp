#include "elastic/session.h"

#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "comm/reduction_tree.h"
#include "elastic/checkpoint.h"
#include "elastic/ledger.h"
#include "tensor/check.h"
#include "tensor/file.h"
#include "tensor/ops/pointwise.h"

namespace elinvar {
namespace {

constexpr const char* kStep = "step";  // beside the state's own names, which have dots

const std::filesystem::path& prepared(const std::filesystem::path& directory) {
  make_directories(directory);
  return directory;
}

}  // namespace

struct Session::Impl {
  Impl(const SessionOptions& session_options, StateAccess access)
      : options(session_options), state(std::move(access)), lock(File::append(prepared(options.directory) / "lock")) {
    check(lock.try_lock(), "{} is in use by another process", options.directory.string());
    ledger.emplace(options.directory);
    events.emplace(options.directory);
    store.emplace(options.directory / "checkpoints", options.keep);
    store->prepare();
    const bool empty = ledger->length() == 0 && store->steps().empty();
    check(empty || options.resume, "{} already holds a run; --resume goes on with it, --run-dir chooses another place",
          options.directory.string());
    if (options.resume) resume();
  }

  void resume() {
    const auto contradicted = [this](const Checkpoint& checkpoint) -> std::string {
      if (checkpoint.step == 0) return "";
      if (checkpoint.step > ledger->length())
        return fmt::format("checkpoint of step {} cannot be used: the ledger ends at step {}", checkpoint.step,
                           ledger->length());
      const LedgerLine line = LedgerLine::parse(ledger->line(checkpoint.step));
      if (line.state && *line.state != checkpoint.digest)
        return fmt::format("checkpoint of step {} cannot be used: its state is not the one in the ledger",
                           checkpoint.step);
      return "";
    };
    std::vector<CheckpointStore::Rejected> rejected;
    const auto found = store->newest_good(contradicted, rejected);
    std::string reasons;
    for (const auto& [at, reason] : rejected) {
      notices.push_back(reason);
      events->write("checkpoint_rejected", {{"step", at}, {"reason", reason}});
      reasons += "\n  " + reason;
    }
    if (!found && !rejected.empty())
      fail("cannot resume {}: no checkpoint is good{}", options.directory.string(), reasons);
    if (found) {
      load(*found);
      notices.push_back(fmt::format("resuming after step {}", step));
    } else {
      notices.push_back("no checkpoint yet: starting at the beginning");
    }
    events->write("resume", {{"step", step}});
  }

  void load(const Checkpoint& checkpoint) {
    StateDict loaded = checkpoint.state;
    const auto at = loaded.find(kStep);
    if (at == loaded.end() || at->second.dtype() != DType::i64 || at->second.numel() != 1 ||
        *at->second.data<int64_t>() != checkpoint.step)
      fail("the state of checkpoint {} does not say that it is of step {}", checkpoint.step, checkpoint.step);
    loaded.erase(at);
    state.load(loaded);
    step = checkpoint.step;
  }

  StateDict whole_state() const {
    StateDict whole = state.view();
    const bool fresh = whole.emplace(kStep, Tensor::from(std::vector<int64_t>{step}, {})).second;
    invariant(fresh, "the name of the step is the session's own");
    return whole;
  }

  void write_checkpoint(const StateDict& whole, const Digest& digest) {
    const auto begin = std::chrono::steady_clock::now();
    ledger->sync();  // a checkpoint never knows more than the ledger
    store->write(step, whole, digest);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    checkpointed = step;
    events->write("checkpoint", {{"step", step}, {"state", digest.hex()}, {"seconds", seconds.count()}});
  }

  SessionOptions options;
  StateAccess state;
  File lock;
  std::optional<Ledger> ledger;
  std::optional<EventLog> events;
  std::optional<CheckpointStore> store;
  std::vector<std::string> notices;

  int64_t step = 0;
  int64_t checkpointed = -1;  // the step of the newest checkpoint that this session wrote
  std::optional<TreeFold> fold;
  std::optional<Hasher> batches;
  Reduced reduced;
  double loss_sum = 0;
  size_t gradients = 0;  // how many of a leaf's tensors are gradients
};

Session::Session(const SessionOptions& options, StateAccess state)
    : impl_(std::make_unique<Impl>(options, std::move(state))) {}
Session::~Session() = default;

int64_t Session::step() const { return impl_->step; }
const std::vector<std::string>& Session::notices() const { return impl_->notices; }
EventLog& Session::events() { return *impl_->events; }
const Reduced& Session::reduced() const { return impl_->reduced; }

Plan Session::begin() {
  impl_->fold.emplace(impl_->options.virtual_ranks);
  impl_->batches.emplace();
  impl_->reduced = {};
  impl_->loss_sum = 0;
  Plan plan;
  plan.mine.resize(static_cast<size_t>(impl_->options.virtual_ranks));
  std::iota(plan.mine.begin(), plan.mine.end(), 0);
  return plan;
}

void Session::add(int vrank, Leaf leaf) {
  Reduced& r = impl_->reduced;
  impl_->batches->add(leaf.batch);
  impl_->loss_sum += leaf.loss_sum;
  r.count += leaf.count;
  r.correct += leaf.correct;
  r.samples += leaf.samples;
  std::vector<Tensor> values = std::move(leaf.gradients);
  if (!values.empty()) {
    impl_->gradients = values.size();
    r.leaves += 1;
    std::move(leaf.terms.begin(), leaf.terms.end(), std::back_inserter(values));
  }
  impl_->fold->add(vrank, std::move(values));
}

void Session::reduce() {
  Reduced& r = impl_->reduced;
  if (r.count == 0) fail("step {}: no target in the whole batch counts, so there is no mean to take", impl_->step + 1);
  r.gradients = impl_->fold->take_root();
  r.terms.assign(r.gradients.begin() + static_cast<std::ptrdiff_t>(impl_->gradients), r.gradients.end());
  r.gradients.resize(impl_->gradients);
  r.batch = impl_->batches->digest();
  r.loss = impl_->loss_sum / static_cast<double>(r.count);
  Hasher hasher;
  for (Tensor& gradient : r.gradients) {
    scale_into(gradient, 1.0 / static_cast<double>(r.count));
    hasher.add(digest(gradient));
  }
  r.gradient = hasher.digest();
}

void Session::advance() {
  const SessionOptions& options = impl_->options;
  const int64_t step = ++impl_->step;
  const Reduced& r = impl_->reduced;
  LedgerLine line{.step = step, .batch = r.batch, .loss = r.loss, .gradient = r.gradient, .state = {}};

  const bool save = step == options.steps || due(step, options.checkpoint_every);
  StateDict whole;
  if (save || due(step, options.state_digest_every)) {
    whole = impl_->whole_state();
    line.state = digest(whole);
  }
  impl_->ledger->record(line);
  if (save) impl_->write_checkpoint(whole, *line.state);
}

void Session::checkpoint() {
  if (impl_->checkpointed == impl_->step) return;
  const StateDict whole = impl_->whole_state();
  impl_->write_checkpoint(whole, digest(whole));
}

Digest Session::state_digest() const { return digest(impl_->whole_state()); }

}  // namespace elinvar
