#pragma once
// Reads tar archives in place. Nothing is unpacked, so names in them can do no harm. Supports ustar, GNU long names and
// large sizes, and the path and size records of pax. Skips links, folders and devices.
#include <memory>
#include <string>
#include <vector>

#include "data/files.h"
#include "tensor/base/file.h"

namespace elinvar {

struct TarMember {
  std::string name;      // without a leading "./"
  int64_t offset, size;  // of its contents in the archive, in bytes
};

// Returns the regular files of an archive, in order. Throws Failure, which says what was found, for files that are
// compressed, not a tar, damaged or truncated.
std::vector<TarMember> tar_members(const File& file);

// Opens an archive as a set of files. Of members with the same name the last one counts, as when unpacking; names that
// begin with a dot are left out, as in a folder. Throws like tar_members().
std::unique_ptr<FileSet> open_tar(const std::string& path, const std::vector<std::string>& exclude = {});

}  // namespace elinvar
