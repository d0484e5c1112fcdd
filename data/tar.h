#pragma once
// A tar archive as a set of files: read in place, never unpacked, so names in it can do no harm. Understands ustar, GNU
// long names and large sizes, and the path and size records of pax. Of two members with one name the later counts, as
// when unpacking. Links, folders and devices are passed over.
#include <memory>
#include <string>
#include <vector>

#include "data/files.h"

namespace elinvar {

// Throws Failure, saying what was found, for what is compressed, not a tar, damaged or truncated.
std::unique_ptr<FileSet> open_tar(const std::string& path, const std::vector<std::string>& exclude = {});

}  // namespace elinvar
