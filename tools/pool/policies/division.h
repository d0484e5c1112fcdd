#pragma once
// Threads a worker: into how many workers the slots of a job are divided. n slots of one host can be n workers, or one
// with n times the threads; few have less to tell each other, many need not share a kernel. No bit depends on it.
//
// Policies assign slots, and keep a running job in its shape. What becomes of the slots is decided after them, by what
// is known: a job that starts is divided as one like it was fastest; one that runs is divided anew if that saves more
// time than it costs to stop and to start. Where the next wider division is unknown and would save that much if threads
// were as good as workers, it is tried for a moment (as sizes are, advisor.h), within the same budget.
#include "tools/pool/plan/state.h"

namespace elinvar::pool {

constexpr double kFamiliar = 0.3;  // a rate with a larger error is of a shape that nothing was ever measured in

// The slots as workers of `width` each: those that the job has so stay as they are, the rest is put together host by
// host. Nothing if they do not come out even, or would be fewer or more workers than the job may have.
std::vector<Id> divided(const Pool& pool, const Job& job, const std::vector<Id>& slots, int width);

// The plan with the best division of what each job gets. `trials`: unknown ones may be tried.
Plan with_division(const Pool& pool, Plan plan, bool trials);

}  // namespace elinvar::pool
