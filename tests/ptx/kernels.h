#pragma once
// The kernels of the PTX files, and their launches.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/ptx/program.h"

namespace elinvar::ptx {

class RaceDetector;

// The files are those of the build for the architecture that the variable ELINVAR_PTX_TARGET names ("sm_80"), by
// default the first of CMAKE_CUDA_ARCHITECTURES, or those in the folder that ELINVAR_PTX_FOLDER names. All functions
// throw PtxError.

// Returns a kernel by its mangled name.
Function& find_kernel(const std::string& mangled);

// Decodes every function of a set of files, and returns how many there are.
size_t decode_all(const std::vector<std::string>& paths);

// The files of the build, and their targets.
struct PtxFiles {
  std::string target;
  std::vector<std::string> paths;
};
const std::vector<PtxFiles>& files_of_the_build();

struct Launch {
  unsigned blocks = 1, threads = 1;
  size_t dynamic_shared = 0;
  std::vector<unsigned char> parameters;
};

// Copies the arguments of a launch, which CUDA passes as pointers, to their places in the kernel's parameters.
std::vector<unsigned char> parameters_of(const Function& kernel, void* const* arguments);

// Runs all blocks, one after the other; with ELINVAR_PTX_ORDER=backwards from the last to the first, each from its last
// warp. Races are errors if there is a detector.
void launch(Function& kernel, const Launch& launch, RaceDetector* races);

// The detector of this process, or null, if ELINVAR_PTX_RACES is not "on".
RaceDetector* races_of_this_process();

}  // namespace elinvar::ptx
