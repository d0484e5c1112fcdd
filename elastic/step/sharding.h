#pragma once
// Which workers keep the optimizer's state of which buckets (ZeRO: S. Rajbhandari et al., arXiv:1910.02054): pure
// functions of lists of workers, so that all members of a generation agree without a message (ARRANGEMENT.md).
#include <cstdint>
#include <vector>

#include "tensor/fields.h"

namespace elinvar {

// Workers among which buckets are dealt.
struct BucketDeal {
  std::vector<int> ids = {};  // of the workers, ascending
  int copies = 1;             // the number of workers that keep each bucket, if there are so many

  bool operator==(const BucketDeal&) const = default;
  ELINVAR_FIELDS(ids, copies)
};

// Returns the ids of the workers that keep each bucket: its owner, and then its replicas. Owners have equal numbers of
// buckets up to one, and so have keepers. Preferences are those of rendezvous hashing (D. Thaler, C. Ravishankar,
// "Using name-based mappings to increase hit rates", 1998), so a worker that comes or goes moves little more than its
// own share: with 500 buckets, 1.3 times its share of 8 workers, and 1.5 times its share of 16.
std::vector<std::vector<int>> keepers_of(const BucketDeal& deal, int buckets);

// How a worker holds the state: whole; with the optimizer's state of some buckets; or with their parameters alone, too.
enum class HeldForm { whole, sharded, sliced };
HeldForm form_of(int zero);  // with this stage of ZeRO

// The part of a generation's record that says where the state is.
struct Sharding {
  int zero = 1;             // ZeRO's stage
  BucketDeal keepers = {};  // of the state after the generation's first step and all later ones
  // Holders of the state with which the generation begins. Those that are no members are gone. If `whole`, each has the
  // state of all buckets: it has restored a checkpoint, or the initial state.
  BucketDeal holders = {};
  bool whole = false;
  int zero_before = 1;  // the stage with which that state is held; 0: without ZeRO, by all

  bool operator==(const Sharding&) const = default;
  ELINVAR_FIELDS(zero, keepers, holders, whole, zero_before)
};

// Returns the id of the worker that provides the state of each bucket with which the generation begins: the first
// holder among `members` (ids); 0 for a bucket without one.
std::vector<int> providers_of(const Sharding& sharding, int buckets, const std::vector<int>& members);

}  // namespace elinvar
