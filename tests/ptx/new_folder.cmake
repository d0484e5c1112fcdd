# cmake -DFOLDER=<folder> -P new_folder.cmake: makes the folder, empty.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
