#pragma once
// Chooses into how many workers the slots of a job are split. n slots of one host can be n workers, or one worker with
// n times the threads: fewer workers exchange less, while more workers share no kernels. The split does not affect
// results.
//
// Policies assign slots and keep the worker shape of a running job. This step follows them and uses measurements. A job
// that starts gets the split that was fastest for a similar job. A running job changes its split if that saves more
// time than a stop and a start cost. If the next wider split was never measured, but would save that much if threads
// were as good as workers, it gets a trial, like sizes (advisor.h) and within the same budget.
#include "tools/pool/plan/state.h"

namespace elinvar::pool {

constexpr double kFamiliar = 0.3;  // rates with a larger error belong to worker shapes that were never measured

// Groups slots into workers of `width` slots each, host by host; workers that the job already has with that width keep
// their slots. Returns an empty list if slots of a host are left over or cannot be combined, or if the job may not have
// that many workers.
std::vector<Id> split_slots(const Pool& pool, const Job& job, const std::vector<Id>& slots, int width);

// Returns the plan with the best split for each job. `trials`: whether splits without measurements may be tried.
Plan with_worker_split(const Pool& pool, Plan plan, bool trials);

}  // namespace elinvar::pool
