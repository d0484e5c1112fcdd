#pragma once
// Tar archives, read in place and never unpacked, so names in them can do no harm. Understands ustar, GNU long names
// and large sizes, and the path and size records of pax. Links, folders and devices are passed over.
#include <memory>
#include <string>
#include <vector>

#include "data/files.h"
#include "tensor/base/file.h"

namespace elinvar {

struct TarMember {
  std::string name;      // without "./" before it
  int64_t offset, size;  // where its contents lie in the archive, in bytes
};

// The regular files of an archive, in their order. Throws Failure, saying what was found, for what is compressed, not a
// tar, damaged or truncated.
std::vector<TarMember> tar_members(const File& file);

// An archive as a set of files. Of two members with one name the later counts, as when unpacking; names that begin with
// a dot are left out, as in a folder. Throws as above.
std::unique_ptr<FileSet> open_tar(const std::string& path, const std::vector<std::string>& exclude = {});

}  // namespace elinvar
