#pragma once
// Another process of this same program.
#include <sys/types.h>

#include <string>
#include <vector>

namespace elinvar {

// `train` with these arguments, in a process group of its own so that Ctrl-C is not for it. With `apart` it has a
// session of its own, too, and outlives its terminal. Failure if it cannot be started.
pid_t spawn_train(std::vector<std::string> arguments, bool apart = false);

}  // namespace elinvar
