#include "data/files.h"

#include <gtest/gtest.h>

#include "data/tar.h"
#include "tensor/philox.h"
#include "tests/data/tar_writer.h"
#include "tests/support/odd_files.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

std::vector<std::string> paths_of(const FileSet& files) {
  std::vector<std::string> paths;
  for (const auto& entry : files.entries()) paths.push_back(entry.path);
  return paths;
}

using Paths = std::vector<std::string>;

TEST(Files, AFolderAndATarOfItHoldTheSame) {
  const TemporaryFolder folder;
  TarWriter tar;
  tar.member("set/", "", '5');
  for (const char* name : {"b/2.txt", "a/1.txt", "b/10.txt"}) {
    folder.write(std::string("set/") + name, name);
    tar.member(std::string("./") + name, name);
  }
  folder.write("set/.hidden/3.txt", "no");
  tar.member(".hidden/3.txt", "no").member("link", "", '2');
  const auto on_disk = open_files(folder / "set"), in_tar = open_files(folder.write("set.tar", tar.finish()));
  EXPECT_EQ(paths_of(*on_disk), (Paths{"a/1.txt", "b/10.txt", "b/2.txt"}));
  EXPECT_EQ(paths_of(*in_tar), paths_of(*on_disk));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(in_tar->read(i), on_disk->read(i));
  EXPECT_EQ(in_tar->read("b/2.txt"), "b/2.txt");
  EXPECT_TRUE(in_tar->contains("a/1.txt"));
  EXPECT_FALSE(in_tar->contains("a/2.txt"));
}

TEST(Files, ExcludedFoldersAreLeftOut) {
  const TemporaryFolder folder;
  TarWriter tar;
  for (const char* name : {"build/x.h", "src/build/x.h", "src/y.h", "src/y.o"}) {
    folder.write(std::string("set/") + name, "");
    tar.member(name, "");
  }
  const Paths exclude = {"build*", "*.o"};
  EXPECT_EQ(paths_of(*open_files(folder / "set", exclude)), (Paths{"src/build/x.h", "src/y.h"}));
  EXPECT_EQ(paths_of(*open_files(folder.write("set.tar", tar.finish()), exclude)), (Paths{"src/build/x.h", "src/y.h"}));
}

TEST(Files, WhatIsNeitherFileNorFolderIsRefused) {
  const TemporaryFolder folder;
  folder.write("set/a.txt", "a");
  const auto refusal = [&] { return message_of<Failure>([&] { open_files(folder / "set"); }); };
  const auto expect = [&](const std::string& name, const std::string& what) {
    const std::string path = folder / ("set/" + name);
    EXPECT_EQ(refusal(),
              "[data] '" + path + "' is neither a file nor a folder, but " + what + "; remove it from the folder");
    EXPECT_EQ(paths_of(*open_files(folder / "set", {name})), (Paths{"a.txt"}));
    std::filesystem::remove(path);
  };
  make_pipe(folder / "set/b");
  expect("b", "a pipe");
  make_socket(folder / "set/c");
  expect("c", "a socket");
  std::filesystem::create_symlink("/dev/null", folder / "set/d");
  expect("d", "a device");
  std::filesystem::create_symlink("nowhere", folder / "set/e");
  expect("e", "a link to nothing");
  std::filesystem::create_symlink("f", folder / "set/f");
  expect("f", "a link that cannot be followed (Too many levels of symbolic links)");
  std::filesystem::create_symlink("..", folder / "set/g");  // a link to a folder, which is not followed
  std::filesystem::create_symlink("../set/a.txt", folder / "set/h.txt");
  EXPECT_EQ(paths_of(*open_files(folder / "set")), (Paths{"a.txt", "h.txt"}));
}

TEST(Tar, UnderstandsLongNamesInEveryForm) {
  const TemporaryFolder folder;
  const std::string name = std::string(120, 'd') + "/" + std::string(130, 'f');
  TarWriter tar;
  tar.gnu_long_name("gnu/" + name, "one");
  tar.pax("path", "pax/" + name).member("short", "two");
  tar.member(std::string(90, 'n'), "three", '0', std::string(140, 'p'));
  tar.member("after", "four");
  const auto files = open_tar(folder.write("a.tar", tar.finish()));
  EXPECT_EQ(paths_of(*files),
            (Paths{"after", "gnu/" + name, "pax/" + name, std::string(140, 'p') + "/" + std::string(90, 'n')}));
  EXPECT_EQ(files->read("gnu/" + name), "one");
  EXPECT_EQ(files->read("pax/" + name), "two");
  EXPECT_EQ(files->read("after"), "four");
}

TEST(Tar, OfTwoMembersWithOneNameTheLaterCounts) {
  const TemporaryFolder folder;
  const auto files =
      open_tar(folder.write("a.tar", TarWriter().member("x", "old").member("y", "").member("./x", "newer").finish()));
  EXPECT_EQ(paths_of(*files), (Paths{"x", "y"}));
  EXPECT_EQ(files->read("x"), "newer");
}

TEST(Tar, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& bytes) {
    return message_of<Failure>([&] { open_files(folder.write("a.tar", bytes)); });
  };
  const std::string whole = TarWriter().member("first", std::string(700, 'x')).member("second", "y").finish();
  EXPECT_EQ(error(whole), "");
  EXPECT_NE(error(whole.substr(0, 1200)).find("truncated"), std::string::npos);  // within the contents
  EXPECT_NE(error(whole.substr(0, 1536)).find("truncated"), std::string::npos);  // between members
  EXPECT_NE(error(whole.substr(0, 1800)).find("truncated"), std::string::npos);  // within a header
  EXPECT_NE(error("").find("truncated, or no tar"), std::string::npos);
  EXPECT_NE(error(std::string(2000, 'z')).find("neither a folder nor a tar"), std::string::npos);
  EXPECT_NE(error(std::string("\x1f\x8b") + std::string(2000, 'z')).find("compressed"), std::string::npos);
  std::string flipped = whole;
  flipped[1536 + 3] ^= 1;
  EXPECT_NE(error(flipped).find("wrong checksum in the header at byte 1536"), std::string::npos);
  EXPECT_NE(error(TarWriter().pax("path", "x").finish().replace(512, 1, "7")).find("malformed pax"), std::string::npos);
  EXPECT_NE(message_of<Failure>([&] { open_files(folder / "nothing"); }).find("does not exist"), std::string::npos);
}

// Any damage ends in a Failure or in a readable archive; nothing is read out of bounds.
TEST(Tar, SurvivesDamage) {
  const TemporaryFolder folder;
  const std::string name(200, 'n');
  const std::string whole = TarWriter()
                                .gnu_long_name(name, "one")
                                .pax("path", "two")
                                .pax("size", "3")
                                .member("short", "two")
                                .member("plain", std::string(600, 'p'))
                                .finish();
  int opened = 0;
  for (uint32_t round = 0; round < 300; ++round) {
    std::string bytes = whole;
    const Random4 r = philox(1, round, 0, 0, 0);
    const size_t block = r.v[0] % 8 * 512;
    // Damages the fields that are read, then corrects the checksum, so that the damage passes the first check.
    const size_t at = r.v[1] % 2 ? 124 + r.v[2] % 12 : r.v[2] % 512;
    bytes[block + at] = static_cast<char>(r.v[3]);
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(block) + 148, 8, ' ');
    unsigned sum = 0;
    for (size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(bytes[block + i]);
    bytes.replace(block + 148, 7, fmt::format("{:06o}", sum) + '\0');
    if (r.v[1] % 5 == 0) bytes.resize(r.v[3] % bytes.size());
    try {
      const auto files = open_tar(folder.write("a.tar", bytes));
      for (size_t i = 0; i < files->entries().size(); ++i)
        EXPECT_EQ(files->read(i).size(), static_cast<size_t>(files->entries()[i].size));
      ++opened;
    } catch (const Failure&) {
    }
  }
  EXPECT_GT(opened, 10);
  EXPECT_LT(opened, 290);
}

}  // namespace
}  // namespace elinvar::test
