#include "tensor/base/file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "tests/support/odd_files.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

TEST(File, ReadsExactlyWhatIsAskedFor) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", "0123456789");
  const File file = File::open(path);
  std::string middle(4, ' ');
  file.read(3, middle.data(), middle.size());
  EXPECT_EQ(middle, "3456");
  EXPECT_EQ(message_of<Failure>([&] { file.read(8, middle.data(), 4); }),
            "cannot read " + path + ": it ends at byte 10, expected 2 more; is it truncated?");
}

TEST(File, IsARegularFile) {
  const TemporaryFolder folder;
  const std::string pipe = folder / "pipe", socket = folder / "socket";
  make_pipe(pipe);
  make_socket(socket);
  for (const std::string& path : {folder.path(), std::string("/dev/null"), pipe, socket})
    EXPECT_EQ(message_of<Failure>([&] { read_file(path); }), "cannot open " + path + ": it is not a regular file");
  const std::string absent = folder / "absent";
  EXPECT_EQ(message_of<Failure>([&] { read_file(absent); }), "cannot open " + absent + ": No such file or directory");
}

TEST(File, DirectoriesAreMadeWithThoseAbove) {
  const TemporaryFolder folder;
  for (const char* name : {"a/b/c", "a/b/c", "a/d/", "a"}) {
    make_directories(folder / name);
    EXPECT_TRUE(std::filesystem::is_directory(folder / name)) << name;
  }
  make_directories("");
  const std::string file = folder.write("file", "");
  EXPECT_EQ(message_of<Failure>([&] { make_directories(file); }),
            "cannot create the directory " + file + ": a file has this name; choose another one");
  EXPECT_NE(message_of<Failure>([&] { make_directories(file + "/below"); }), "");
}

TEST(File, WhatKeepsAFileFromBeingCreatedIsToldInWords) {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", "kept"), place = folder.path();
  EXPECT_EQ(message_of<Failure>([&] { File::create(file); }), file + " exists; choose another name");
  EXPECT_EQ(read_file(file), "kept");
  const std::string below = folder / "absent/file", through = file + "/below";
  for (const auto& create :
       {std::function<void(std::string)>([](const std::string& path) { File::create(path); }),
        std::function<void(std::string)>([](const std::string& path) { replace_file(path, ""); }),
        std::function<void(std::string)>([](const std::string& path) { create_file(path, ""); })}) {
    EXPECT_EQ(message_of<Failure>([&] { create(below); }),
              "cannot create " + below + ": there is no folder " + place + "/absent");
    EXPECT_EQ(message_of<Failure>([&] { create(through); }),
              "cannot create " + through + ": " + file + " is no folder");
  }
  EXPECT_EQ(message_of<Failure>([&] { replace_file(place, ""); }),
            "cannot create " + place + ": it is a folder; name a file in it");
}

TEST(File, IsCreatedWholeOrNotAtAll) {
  const TemporaryFolder folder;
  EXPECT_TRUE(create_file(folder / "a", "one"));
  EXPECT_FALSE(create_file(folder / "a", "two"));
  EXPECT_EQ(read_file(folder / "a"), "one");
  EXPECT_EQ(paths_in(folder.path()).size(), 1u);
  EXPECT_THROW(create_file(folder / "absent" / "a", "one"), Failure);
  for (const std::filesystem::path& name : {unfinished_name(folder / "a"), folder / "b"}) File::create(name);
  remove_unfinished_files(folder.path());
  EXPECT_EQ(paths_in(folder.path()).size(), 2u);
  EXPECT_TRUE(paths_in(folder / "absent").empty());
  EXPECT_NE(message_of<Failure>([&] { paths_in(folder / "a"); }).find("cannot read the directory"), std::string::npos);
}

// A process that is killed leaves its unfinished file, which the next one that makes the file removes.
TEST(File, WhatAProcessLeftOfItIsRemoved) {
  const TemporaryFolder folder;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (const char* name : {"a", "b"}) File::create(unfinished_name(folder / name));
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const std::filesystem::path own = unfinished_name(folder / "a");
  File::create(own);
  ASSERT_EQ(paths_in(folder.path()).size(), 3u);
  remove_abandoned(folder / "a");
  EXPECT_EQ(paths_in(folder.path()).size(), 2u) << "that of b stays";
  EXPECT_TRUE(std::filesystem::exists(own));
}

TEST(File, IsReplacedWithoutTouchingOthers) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", "old"), other = folder.write("a.new", "kept");
  replace_file(path, "new");
  EXPECT_EQ(read_file(path), "new");
  EXPECT_EQ(read_file(other), "kept");
  EXPECT_EQ(paths_in(folder.path()).size(), 2u);
  const std::string link = folder / "link";
  std::filesystem::create_symlink(path, link);
  replace_file(link, "through a link");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_file(path), "through a link");
  std::filesystem::create_symlink("later", folder / "dangling");
  replace_file(folder / "dangling", "made");
  EXPECT_EQ(read_file(folder / "later"), "made");
  std::filesystem::remove(folder / "later");
  std::filesystem::remove(folder / "dangling");
  const std::string pipe = folder / "pipe";
  make_pipe(pipe);
  EXPECT_EQ(message_of<Failure>([&] { replace_file(pipe, ""); }),
            "cannot replace " + pipe + ": it is not a regular file");
}

TEST(File, ThatCannotBeWrittenIsFoundWithoutWritingIt) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", "old"), absent = folder / "absent/b";
  check_replaceable(path);
  check_replaceable(folder / "b");
  EXPECT_EQ(message_of<Failure>([&] { check_replaceable(absent); }),
            "cannot create " + absent + ": there is no folder " + folder.path() + "/absent");
  EXPECT_EQ(message_of<Failure>([&] { check_replaceable(folder.path()); }),
            "cannot create " + folder.path() + ": it is a folder; name a file in it");
  const std::string long_name = folder / std::string(256, 'x');
  EXPECT_NE(message_of<Failure>([&] { check_replaceable(long_name); }).find("File name too long"), std::string::npos);
  EXPECT_EQ(paths_in(folder.path()).size(), 1u);
  EXPECT_EQ(read_file(path), "old");
}

}  // namespace
}  // namespace elinvar::test
