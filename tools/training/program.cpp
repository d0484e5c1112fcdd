#include "tools/training/program.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>

#include "tensor/base/file.h"
#include "tensor/digest.h"

namespace elinvar {
namespace {

// The first object is the program itself. Each note is three sizes, then its name and content, padded to 4 bytes.
int find_note(dl_phdr_info* object, size_t, void* found) {
  const auto padded = [](size_t bytes) { return (bytes + 3) / 4 * 4; };
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr);
    const char* const end = at + segment.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      const auto& note = *reinterpret_cast<const ElfW(Nhdr)*>(at);
      const char* const name = at + sizeof note;
      const auto* content = reinterpret_cast<const unsigned char*>(name + padded(note.n_namesz));
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::string(name) == "GNU")
        for (size_t k = 0; k < note.n_descsz; ++k)
          *static_cast<std::string*>(found) += fmt::format("{:02x}", content[k]);
      at = name + padded(note.n_namesz) + padded(note.n_descsz);
    }
  }
  return 1;
}

}  // namespace

// Reads the file in pieces: a worker that computes little would otherwise need the most memory here.
std::string digest_of_program(const std::filesystem::path& program) {
  constexpr int64_t kPiece = int64_t{1} << 18;
  const File file = File::open(program);
  const int64_t size = file.size();
  std::string piece;
  Hasher hasher;
  for (int64_t at = 0; at < size; at += kPiece) {
    piece.resize(static_cast<size_t>(std::min(kPiece, size - at)));
    file.read(at, piece.data(), piece.size());
    hasher.add(piece.data(), piece.size());
  }
  return hasher.digest().hex();
}

std::string build_id() {
  static const std::string id = [] {
    std::string note;
    dl_iterate_phdr(find_note, &note);
    return note.empty() ? digest_of_program("/proc/self/exe") : note;
  }();
  return id;
}

}  // namespace elinvar
