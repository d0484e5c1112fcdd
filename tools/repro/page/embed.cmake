# Writes a page as a string in C++, with its style and its scripts in it:
# -DPAGE=file.html -DCSS=file.css -DSCRIPTS=file.js;file.js -DNAME=the variable -DTO=file.cpp
file(READ "${PAGE}" page)
file(READ "${CSS}" style)
foreach(script ${SCRIPTS})
  file(READ "${script}" text)
  string(APPEND scripts "${text}")
endforeach()
string(REPLACE "\n\"use strict\";\n" "\n" scripts "${scripts}")
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "\"use strict\";\n${scripts}" page "${page}")
file(WRITE "${TO}" "extern const char* const ${NAME};\nconst char* const ${NAME} = R\"page(${page})page\";\n")
