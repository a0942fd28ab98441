// The user's source line that made a node.
#pragma once
#include <string>

struct _object;

namespace wisp {

struct SourceLine {
    _object* code = nullptr;  // new reference
    int offset = 0;
};
SourceLine current_source();
bool called_by_the_package();                        // whether the innermost frame is one of it
std::string source_text(_object* code, int offset);  // "file.py:12"
void set_package_directory(const char* directory);

}  // namespace wisp
