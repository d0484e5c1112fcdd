#pragma once
// Chooses into how many workers the slots of a job are split. n slots of one host can be n workers, or one worker with
// n times the threads: fewer workers exchange less, more workers need not share a kernel. No bit of a result depends on
// it.
//
// Policies assign slots and keep the worker shape of a running job. This step comes after them and uses what was
// measured. A job that starts gets the split that was fastest for a job like it. A running job changes over if that
// saves more time than a stop and a start cost. If the next wider split was never measured, but would save that much if
// threads were as good as workers, it is tried for a moment, like sizes (advisor.h) and within the same budget.
#include "tools/pool/plan/state.h"

namespace elinvar::pool {

constexpr double kFamiliar = 0.3;  // rates with a larger error belong to worker shapes that were never measured

// Groups slots into workers of `width` slots each, host by host; workers that the job has with that width keep their
// slots. Returns nothing if a host's slots do not come out even, or if the job may not have that many workers.
std::vector<Id> split_slots(const Pool& pool, const Job& job, const std::vector<Id>& slots, int width);

// Returns the plan with the best split for each job. `trials`: whether splits without measurements may be tried.
Plan with_worker_split(const Pool& pool, Plan plan, bool trials);

}  // namespace elinvar::pool
