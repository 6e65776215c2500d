/* Short forms of table entries, for the generated tables of a step. */
#ifndef POLYHAL_TABLES_H
#define POLYHAL_TABLES_H

#include "polyhal_step.h"

#define BUFFER(index) {POLYHAL_BUFFER, index, 0, NULL}
#define LOCAL(bytes) {POLYHAL_LOCAL, 0, bytes, NULL}
#define NUMBER(type, index) {type, index, 0, NULL}
#define BITS8(value) {POLYHAL_VALUE, 0, sizeof(uint8_t), &(const uint8_t){value}}
#define BITS16(value) {POLYHAL_VALUE, 0, sizeof(uint16_t), &(const uint16_t){value}}
#define BITS32(value) {POLYHAL_VALUE, 0, sizeof(uint32_t), &(const uint32_t){value}}
#define BITS64(value) {POLYHAL_VALUE, 0, sizeof(uint64_t), &(const uint64_t){value}}
#define BYTES(array) {POLYHAL_VALUE, 0, sizeof(array), array}

#endif
