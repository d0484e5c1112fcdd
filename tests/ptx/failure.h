#pragma once
// The exceptions of the interpreter. A Fault describes a failed access or instruction. The caller, which knows the
// kernel and the line, adds them and throws PtxError.
#include <stdexcept>
#include <string>

namespace elinvar::ptx {

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct PtxError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace elinvar::ptx
