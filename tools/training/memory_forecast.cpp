#include "tools/training/memory_forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>

#include "elastic/protocol/member.h"
#include "elastic/step/sharding.h"
#include "tensor/state_slice.h"

namespace elinvar {
namespace {

constexpr int64_t kFloat = sizeof(float);

// Bytes of some parameters, of what is kept for them between steps, and of gradients that members divide with ZeRO. All
// members get those of sparse tables.
struct Bytes {
  int64_t parameters = 0, optimizer = 0, average = 0, gradients = 0;

  Bytes& operator+=(const Bytes& other) {
    parameters += other.parameters;
    optimizer += other.optimizer;
    average += other.average;
    gradients += other.gradients;
    return *this;
  }
};

Bytes bytes_of(const MemoryNeeds& needs, const Slice& slice) {
  const int64_t bytes = slice.numel() * kFloat;
  Bytes all{.parameters = bytes, .average = needs.average ? bytes : 0};
  if (const auto table = needs.tables.find(slice.tensor); table != needs.tables.end()) {
    const int64_t elements = needs.parameters[static_cast<size_t>(slice.tensor)].numel();
    all.optimizer = static_cast<int64_t>(static_cast<double>(table->second.state) * static_cast<double>(slice.numel()) /
                                         static_cast<double>(elements));
  } else {
    all.optimizer = needs.slots * bytes;
    all.gradients = bytes;
  }
  return all;
}

Bytes bytes_of_all(const MemoryNeeds& needs) {
  Bytes all;
  for (size_t i = 0; i < needs.parameters.size(); ++i)
    all += bytes_of(needs, {static_cast<int>(i), 0, needs.parameters[i].numel()});
  return all;
}

// A member of a model replica.
struct ReplicaMember {
  ReplicaPlace place;
  int members = 1;  // of the replica
  int of_stage = 1;

  // Returns which part of a parameter's gradient it contributes, from 0 to 1.
  double contributes(const MemoryNeeds& needs, size_t parameter) const {
    if (members == 1) return 1;
    const NetworkPart part = needs.parts ? needs.parts->gradients[parameter] : NetworkPart{};
    if (!place.segments.empty() && !contains(place.segments, part.segment)) return 0;
    if (part.shard < 0) return 1.0 / of_stage;
    return contains({&place.shards, 1}, part.shard) ? 1 : 0;
  }
};

ReplicaMember member_of(const std::vector<WorkerLoad>& workers, const ReplicaPlace& place) {
  const auto count = [&](bool same_stage) {
    return static_cast<int>(std::ranges::count_if(workers, [&](const WorkerLoad& other) {
      return other.place.replica == place.replica && (!same_stage || other.place.stage == place.stage);
    }));
  };
  return {.place = place, .members = count(false), .of_stage = count(true)};
}

// Returns the bytes of the gradients that a member contributes.
int64_t contributed_bytes(const MemoryNeeds& needs, const ReplicaMember& member) {
  double bytes = 0;
  for (size_t i = 0; i < needs.parameters.size(); ++i)
    bytes += member.contributes(needs, i) * static_cast<double>(gradient_bytes(needs, i));
  return std::llround(bytes);
}

// The bytes of the buckets that each worker keeps, and of those that it owns; of the sums that it gets without a
// contribution of its own; and of the gradients in the largest bucket.
struct Shares {
  std::vector<Bytes> kept, owned;
  std::vector<int64_t> of_others;
  int64_t largest = 0;
};
Shares shares_of(const MemoryNeeds& needs, const BucketDeal& deal, const std::vector<ReplicaMember>& members) {
  ShardOptions sharding{.multiple = kChunkElements, .parameters = needs.parameters};
  for (const auto& [i, table] : needs.tables) sharding.tables[i] = table.cut;
  const GradientLayout layout(MemberOptions().bucket_elements, sharding, needs.parts);
  Shares shares{.kept = std::vector<Bytes>(deal.ids.size()),
                .owned = std::vector<Bytes>(deal.ids.size()),
                .of_others = std::vector<int64_t>(deal.ids.size())};
  const std::vector<std::vector<int>> keepers = keepers_of(deal, layout.shards());
  for (int b = 0; b < layout.shards(); ++b) {
    const std::vector<int>& ids = keepers[static_cast<size_t>(b)];
    Bytes bytes;
    for (const Slice& slice : layout.shard_buckets().slices(b)) {
      const Bytes of_slice = bytes_of(needs, slice);
      bytes += of_slice;
      for (const int id : ids) {
        const auto worker = static_cast<size_t>(id - 1);
        const double of_others = 1 - members[worker].contributes(needs, static_cast<size_t>(slice.tensor));
        shares.of_others[worker] += std::llround(of_others * static_cast<double>(of_slice.gradients));
      }
    }
    shares.largest = std::max(shares.largest, bytes.gradients);
    for (const int id : ids) shares.kept[static_cast<size_t>(id - 1)] += bytes;
    shares.owned[static_cast<size_t>(ids[0] - 1)] += bytes;
  }
  for (size_t worker = 0; worker < members.size(); ++worker)  // all members get the sums of sparse tables
    for (const auto& [i, table] : needs.tables) {
      const auto p = static_cast<size_t>(i);
      const double of_others = 1 - members[worker].contributes(needs, p);
      shares.of_others[worker] += std::llround(of_others * static_cast<double>(gradient_bytes(needs, p)));
    }
  return shares;
}

// Returns the bytes of each worker's part of a checkpoint, of the tensors that all hold whole: parts hold whole tensors
// in name order (elastic/checkpoint/state_parts.h).
std::vector<int64_t> whole_parts(const MemoryNeeds& needs, int zero, size_t workers) {
  const auto parts = static_cast<int64_t>(workers);
  std::map<std::string, int64_t> tensors;
  int64_t equal = needs.other_state;  // small ones
  for (size_t i = 0; i < needs.parameters.size() && zero < 3; ++i) {
    const Bytes bytes = bytes_of(needs, {static_cast<int>(i), 0, needs.parameters[i].numel()});
    if (needs.names.empty()) {
      equal += bytes.parameters + (zero == 0 ? bytes.optimizer + bytes.average : 0);
      continue;
    }
    tensors["model." + needs.names[i]] = bytes.parameters;
    const int64_t slots = zero > 0 ? 0 : std::max<int64_t>(1, bytes.optimizer / std::max<int64_t>(1, bytes.parameters));
    for (int64_t k = 0; k < slots; ++k)
      tensors[fmt::format("optimizer.{}.{}", needs.names[i], k)] = bytes.optimizer / slots;
    if (zero == 0) tensors["average." + needs.names[i]] = bytes.average;
  }
  int64_t total = 0, before = 0;
  for (const auto& [name, bytes] : tensors) total += bytes;
  std::vector<int64_t> each(workers, equal / parts);
  for (const auto& [name, bytes] : tensors) {
    const int64_t middle = before + bytes / 2;
    before += bytes;
    each[static_cast<size_t>(std::min(parts - 1, middle * parts / std::max<int64_t>(1, total)))] += bytes;
  }
  return each;
}

// Returns the bytes of the parameters of a segment, at most, that the member computes. Sparse tables are not fetched.
int64_t largest_segment(const MemoryNeeds& needs, const ReplicaPlace& place) {
  std::map<int, int64_t> bytes;
  for (size_t i = 0; i < needs.parameters.size(); ++i) {
    const NetworkPart part = needs.parts ? needs.parts->gradients[i] : NetworkPart{};
    if (!place.segments.empty() && !contains(place.segments, part.segment)) continue;
    if (needs.tables.contains(static_cast<int>(i))) continue;
    bytes[part.segment] += needs.parameters[i].numel() * kFloat;
  }
  int64_t most = 0;
  for (const auto& [segment, all] : bytes) most = std::max(most, all);
  return most;
}

// Returns the bytes of the copies that a worker, which owns this part of the parameters, makes for others that fetch a
// segment. A bucket has so many copies among the workers.
double given_bytes(const MemoryNeeds& needs, const std::vector<WorkerLoad>& workers, size_t worker, double owns,
                   int copies) {
  const auto count = static_cast<double>(workers.size());
  const double lack = std::max(0.0, count - copies) / std::max(1.0, count - 1);  // part of the others
  double bytes = 0;
  for (size_t other = 0; other < workers.size(); ++other)
    if (other != worker) bytes += owns * lack * static_cast<double>(largest_segment(needs, workers[other].place));
  return bytes;
}

// Returns the bytes of the sums of sparse tables, at most, that a worker adds up with ZeRO: the owner of a bucket is a
// member that contributes to it.
int64_t owned_of_tables(const MemoryNeeds& needs, const std::vector<WorkerLoad>& workers, size_t worker) {
  int64_t owned = 0;
  for (const auto& [i, table] : needs.tables) {
    const auto p = static_cast<size_t>(i);
    const int segment = needs.parts ? needs.parts->gradients[p].segment : 0;
    const auto has = [&](const WorkerLoad& w) {
      return w.place.segments.empty() || contains(w.place.segments, segment);
    };
    if (!has(workers[worker])) continue;
    const int64_t bytes = gradient_bytes(needs, p), largest = MemberOptions().bucket_elements * kFloat;
    owned += std::min(bytes, bytes / std::ranges::count_if(workers, has) + largest);
  }
  return owned;
}

// Returns the most sums of a bucket that its owner has at a time. Replicas compute alternating rank gradients; there
// are the subtrees of those before, and another one comes before they are added up.
int64_t waiting_sums(int ranks, int replicas) {
  int most = 0;
  for (int before = 0; before < ranks; before += replicas)
    most = std::max(most, std::popcount(static_cast<unsigned>(before)));
  return most + 1;
}

// Returns the bytes of the largest bucket in which a group of GPUs adds up gradients without ZeRO. They are of whole
// tensors, and with model replicas of several members of one part of the network.
int64_t largest_bucket(const MemoryNeeds& needs, bool replicas) {
  std::optional<TensorParts> parts = needs.parts;
  if (parts) parts->unsharded = replicas;
  GradientLayout layout(MemberOptions().bucket_elements, {}, std::move(parts));
  RankGradient outline;
  for (const Shape& shape : needs.gradients.empty() ? needs.parameters : needs.gradients)
    outline.gradients.push_back(Tensor::absent(shape));
  layout.learn(outline);
  int64_t most = 0;
  for (int b = 0; b < layout.whole_buckets().count(); ++b) {
    int64_t bytes = 0;
    for (const Slice& slice : layout.whole_buckets().slices(b)) bytes += slice.numel() * kFloat;
    most = std::max(most, bytes);
  }
  return most;
}

// Returns the sums that a worker has of the rank gradients [first, first + count): the largest subtrees of the tree of
// all (tensor/reduction_tree.h).
int subtrees(int first, int count) {
  int subtrees = 0;
  for (const int end = first + count; first < end; ++subtrees) {
    const auto left = static_cast<unsigned>(end - first);
    const unsigned aligned = first == 0 ? left : static_cast<unsigned>(first) & -static_cast<unsigned>(first);
    first += static_cast<int>(std::min(aligned, std::bit_floor(left)));
  }
  return subtrees;
}

// A time of a step in which a worker computes a rank gradient.
struct StepMoment {
  int64_t passes = 0;     // bytes that they take
  int64_t earlier = 0;    // .. and sums of earlier rank gradients
  int64_t exchanged = 0;  // .. and sums of others, and of all
};

// Bytes of a worker in a step.
struct StepBytes {
  int64_t state = 0;      // of the network, and what is kept for it on the device
  int64_t process = 0;    // of the program, with its part of a checkpoint
  int64_t graphs = 0;     // of the tensors that graphs keep
  int64_t before = 0;     // of the result of the step before
  int64_t gradients = 0;  // of a rank gradient that stays, or the part that is on its way to others
  int64_t own = 0;        // of the sums that the worker has made once its rank gradients have ended
  int64_t received = 0;   // .. of those of all, which the update reads
  int64_t transit = 0;    // .. of a bucket in a group of GPUs: the worker's own, and the parts that it adds up
  int64_t messages = 0;
  std::vector<StepMoment> moments;  // one for each rank gradient, the last one with the exchange
};

int64_t with_spare(const MemoryNeeds& needs, int64_t bytes) {
  return bytes + static_cast<int64_t>(needs.spare * static_cast<double>(bytes));
}

// The ways in which gradients of a worker with a GPU are added up: by itself, in a group of GPUs, or by their owners on
// the hosts.
enum class AddedUp { alone, in_group, by_owners };

// Divides the bytes of a worker with a GPU among that and its host. What owners add up is on the host, and so is what a
// group adds up in its first step and in audited ones. A worker that is alone discards a rank gradient on its host as
// it begins.
void divide(const MemoryNeeds& needs, const StepBytes& step, AddedUp how, MemoryForecast& forecast) {
  const GpuNeeds& gpu = *needs.gpu;
  const bool alone = how == AddedUp::alone, stays = how != AddedUp::by_owners;
  const int64_t kept = stays ? step.before + step.graphs : 0;
  int64_t on_gpu = 0, on_host = 0;
  for (const StepMoment& moment : step.moments) {
    on_gpu = std::max(on_gpu, kept + moment.passes + (stays ? moment.earlier : 0));
    if (!alone) on_host = std::max(on_host, step.before + moment.earlier + moment.exchanged + step.messages);
  }
  // Three parts of state that is elsewhere (nn/update_parts.h).
  int64_t at_end = kept + std::min(forecast.offloaded, 3 * needs.slots * needs.offload.part * kFloat);
  if (stays) at_end += step.own;
  if (!alone) at_end += step.received;
  if (how == AddedUp::in_group) at_end += step.transit;
  forecast.peak = gpu.context + with_spare(needs, step.state + gpu.batches + std::max(on_gpu, at_end));
  const int64_t offloaded = needs.offload.to == Offload::To::host ? forecast.offloaded : 0;
  forecast.host = with_spare(needs, step.process + step.gradients + on_host + offloaded);
}

}  // namespace

int64_t gradient_bytes(const MemoryNeeds& needs, size_t parameter) {
  return (needs.gradients.empty() ? needs.parameters : needs.gradients)[parameter].numel() * kFloat;
}

bool is_elsewhere(const MemoryNeeds& needs) {
  return needs.offload.to == Offload::To::file || (needs.gpu && needs.offload.to == Offload::To::host);
}

int64_t state_bytes(const MemoryNeeds& needs) {
  const Bytes all = bytes_of_all(needs);
  return all.parameters + all.optimizer + all.average;
}

std::vector<MemoryForecast> forecast_memory(const MemoryNeeds& needs, const Arrangement& arrangement,
                                            const std::vector<WorkerLoad>& workers) {
  const Bytes whole_bytes = bytes_of_all(needs);
  int64_t gradients = 0, of_tables = 0, rows = 0;
  for (size_t i = 0; i < needs.parameters.size(); ++i) gradients += gradient_bytes(needs, i);
  for (const auto& [i, table] : needs.tables) {
    const int64_t bytes = gradient_bytes(needs, static_cast<size_t>(i));
    of_tables += bytes;
    rows += table.rows + 2 * bytes;  // an update also copies the rows, and their state
  }
  const auto count = static_cast<int64_t>(workers.size());
  const bool alone = count == 1, sharded = arrangement.zero > 0;
  BucketDeal deal{.ids = std::vector<int>(workers.size()), .copies = arrangement.copies};
  std::iota(deal.ids.begin(), deal.ids.end(), 1);
  std::vector<ReplicaMember> members;
  for (const WorkerLoad& worker : workers) members.push_back(member_of(workers, worker.place));
  const Shares shares = sharded ? shares_of(needs, deal, members) : Shares{};
  int all_ranks = 0;
  std::vector<int> size(workers.size(), 0);  // of each replica
  for (const WorkerLoad& worker : workers) {
    if (size[static_cast<size_t>(worker.place.replica)]++ == 0) all_ranks += worker.virtual_ranks;
  }
  const int replicas = static_cast<int>(size.size() - std::ranges::count(size, 0));
  const std::vector<int64_t> parts = whole_parts(needs, arrangement.zero, workers.size());
  std::vector<MemoryForecast> forecasts;
  for (size_t w = 0; w < workers.size(); ++w) {
    const WorkerLoad& worker = workers[w];
    const Bytes kept = sharded ? shares.kept[w] : whole_bytes;
    // Those whose sums a worker gets, and those that it adds up.
    const int64_t sums = sharded ? kept.gradients + of_tables : gradients;
    const int64_t tables = sharded ? owned_of_tables(needs, workers, w) : 0;
    const int64_t owned = sharded ? shares.owned[w].gradients + tables : gradients / count;
    const bool whole = arrangement.zero < 3;  // otherwise those of segments in use are part of a rank gradient's bytes
    MemoryForecast forecast{.parameters = whole ? whole_bytes.parameters : kept.parameters,
                            .optimizer = kept.optimizer,
                            .average = kept.average};
    const Bytes saved = sharded ? shares.owned[w] : Bytes();
    forecast.snapshot = parts[w] + saved.optimizer + saved.average + (whole ? 0 : saved.parameters);
    if (is_elsewhere(needs)) forecast.offloaded = forecast.optimizer;
    const bool single = members[w].members == 1;
    // Members of a model replica have sums of what they contribute.
    const int64_t contributed = contributed_bytes(needs, members[w]);
    // With its second stage a rank gradient leaves as it is made, and owners add up those of all.
    const bool leaves = arrangement.zero >= 2 && !alone;
    const int ranks = worker.virtual_ranks;
    const auto earlier = [&](int ended) { return leaves ? 0 : subtrees(worker.first, ended) * contributed; };
    const int64_t of_last = earlier(std::max(ranks - 1, 0));
    // Without ZeRO, the result of the step before is there for members that may lack it.
    const int64_t before = alone || sharded ? 0 : gradients;
    // Buckets are exchanged while the last backward pass runs: sums of others for this worker's buckets, and the
    // results; or, if rank gradients leave as they are made, sums that wait for the next ones, and at the end results
    // of other owners. Without ZeRO an owner is itself the one that contributes in its replica.
    const int64_t from_others = sharded ? std::min<int64_t>(count - 1, replicas) : replicas - 1;
    // In a single replica, what comes to a table's sums is the owner's rank gradient itself.
    const int64_t waiting = leaves ? owned * waiting_sums(all_ranks, replicas) - (replicas == 1 ? tables : 0) : 0;
    int64_t exchanged = alone ? 0 : leaves ? waiting + sums - owned : owned * from_others + sums;
    // With ZeRO a member of a model replica frees what it has contributed. So with the sums of earlier rank gradients,
    // at the beginning of the last backward pass, there are only results of buckets to which other members contribute.
    const int64_t of_others = sharded ? shares.of_others[w] : gradients - contributed;
    const bool frees = !single && !leaves && sharded;
    if (frees) exchanged = std::max(exchanged - of_last, of_others);
    // Later stages of a pipeline can end theirs once this one has begun its last forward pass. Then results of their
    // buckets come while as many rank gradients as there are stages from this one on have not ended, and one more if
    // the last stage has two runs of segments (elastic/step/pipeline.h).
    int stages_on = 1;
    for (const WorkerLoad& other : workers) {
      if (other.place.replica != worker.place.replica || other.place.stage <= worker.place.stage) continue;
      const int two_runs = other.place.segments.size() > 1 ? 1 : 0;
      stages_on = std::max(stages_on, other.place.stage + 1 - worker.place.stage + two_runs);
    }
    const int64_t early = leaves ? waiting : of_others;
    // Libraries have messages in memory of their own: a rank gradient's contributions of other stages, and with ZeRO-3
    // parameters; and of sparse tables, which may be in few large buckets, sums and contributions of other replicas.
    const int64_t largest = largest_segment(needs, worker.place);
    const double missing =
        1 - static_cast<double>(kept.gradients) / static_cast<double>(std::max<int64_t>(whole_bytes.gradients, 1));
    double fetched = 0;
    if (!whole) {
      const double owns = static_cast<double>(shares.owned[w].gradients) /
                          static_cast<double>(std::max<int64_t>(whole_bytes.gradients, 1));
      fetched = missing * static_cast<double>(largest) + given_bytes(needs, workers, w, owns, arrangement.copies);
    }
    const int64_t messages = (leaves && !worker.place.segments.empty() ? shares.owned[w].gradients : 0) +
                             (leaves ? std::min(replicas, 3) * of_tables : 0) + std::llround(fetched);
    StepBytes step{
        .state =
            forecast.parameters + forecast.optimizer - forecast.offloaded + forecast.average + rows + needs.other_state,
        .process = needs.process + (needs.checkpoints ? forecast.snapshot : 0),
        .graphs = needs.gpu && needs.gpu->graphs && single ? contributed : 0,
        .before = before,
        .gradients = leaves ? 2 * largest : contributed,
        // Members of a model replica begin with the exchange once they have added the last one to the earlier ones.
        .own = single ? of_last + contributed : std::max(of_last, contributed),
        .received = sums,
        .transit = (sharded ? shares.largest : largest_bucket(needs, !single)) * (count + replicas - 1) / count,
        .messages = messages,
        .moments = {}};
    for (int rank = 0; rank < ranks; ++rank)
      step.moments.push_back({.passes = worker.passes.at(std::min(static_cast<size_t>(rank), worker.passes.size() - 1)),
                              .earlier = earlier(rank),
                              .exchanged = rank + 1 == ranks           ? exchanged
                                           : rank + stages_on >= ranks ? early
                                                                       : waiting});
    if (ranks == 0) step.moments.push_back({.exchanged = exchanged});
    if (!needs.gpu) {
      // Free memory of tensors stays with the process, and ZeRO-1 has what others send in memory of messages. So the
      // largest of both add up, also if they are needed at different times.
      const bool apart = sharded && !leaves;
      int64_t tensors = 0, results = 0;
      for (const StepMoment& moment : step.moments) {
        tensors = std::max(tensors, moment.passes + moment.earlier + (apart ? 0 : moment.exchanged));
        results = std::max(results, apart ? moment.exchanged : 0);
      }
      forecast.peak = with_spare(needs, step.state + step.process + step.before + tensors + results + step.messages);
    } else {
      divide(needs, step,
             alone                         ? AddedUp::alone
             : needs.gpu->group && !leaves ? AddedUp::in_group
                                           : AddedUp::by_owners,
             forecast);
    }
    forecasts.push_back(forecast);
  }
  return forecasts;
}

}  // namespace elinvar
