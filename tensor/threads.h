#pragma once
// How many threads a program should use unless it is told.

namespace elinvar {

// The processors that this process may run on (its affinity), at least 1.
int usable_threads();

}  // namespace elinvar
