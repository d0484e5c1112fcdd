#pragma once
// How much page-locked memory the host has; by default without limit.
#include <cstddef>

namespace elinvar::ptx {

void limit_page_locked(size_t most);  // cudaHostAlloc fails if more bytes would be held
size_t page_locked_bytes();           // held now

}  // namespace elinvar::ptx
