#pragma once
// What the interpreter throws. A Fault says what is wrong with the access or the instruction at hand; whoever knows the
// kernel and the line adds them, and throws PtxError.
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
