#include "tools/pool/store/store.h"

#include <chrono>

namespace elinvar::pool {

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace elinvar::pool
