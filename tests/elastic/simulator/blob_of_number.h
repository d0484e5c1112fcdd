#pragma once
// Numbers as the contents of simulated messages.
#include <cstring>
#include <stdexcept>
#include <string>

#include "comm/blob.h"

namespace elinvar {

template <class T>
Blob blob_of_number(T x) {
  return blob_of(std::string(reinterpret_cast<const char*>(&x), sizeof(x)));
}

template <class T>
T number_of(const Blob& blob) {
  T x{};
  if (blob.bytes != sizeof(x)) throw std::runtime_error("a number of another size came");
  std::memcpy(&x, blob.data, sizeof(x));
  return x;
}

}  // namespace elinvar
