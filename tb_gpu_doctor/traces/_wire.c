/* Python glue of wire_core: limited API (3.10 and up), columns written into bytearrays in place, GIL released.
 *
 * decode_plane(data: bytes, slots: tuple[tuple[bytes, int], ...], max_bytes: int) is described in wire.py.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

#include "wire_core.h"

/* What the core's allocations become. `thread` is set while the GIL is released. */
typedef struct {
    PyObject *columns[WIRE_COLUMNS];
    PyThreadState *thread;
} columns;

/* Called by the core, without the GIL. */
static void *allocate_column(void *context, int column, size_t size)
{
    columns *all = context;
    void *data = NULL;
    PyEval_RestoreThread(all->thread);
    if (size > (size_t)PY_SSIZE_T_MAX) {
        PyErr_NoMemory();
    } else if (column == WIRE_STRING_BLOB) {
        all->columns[column] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
        if (all->columns[column] != NULL)
            data = PyBytes_AsString(all->columns[column]);
    } else {
        all->columns[column] = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size);
        if (all->columns[column] != NULL)
            data = PyByteArray_AsString(all->columns[column]);
    }
    all->thread = PyEval_SaveThread();
    return data;
}

/* Secret and random, so that nobody can prepare a file whose strings collide. */
static int draw_seed(uint64_t seed[2])
{
    PyObject *os = PyImport_ImportModule("os");
    if (os == NULL)
        return -1;
    PyObject *bytes = PyObject_CallMethod(os, "urandom", "i", 16);
    Py_DECREF(os);
    if (bytes == NULL)
        return -1;
    memcpy(seed, PyBytes_AsString(bytes), 16);
    Py_DECREF(bytes);
    return 0;
}

static int read_slots(PyObject *spec, wire_slot *slots)
{
    Py_ssize_t count = PyTuple_Size(spec);
    if (count < 0)
        return -1;
    if (count > WIRE_MAX_SLOTS) {
        PyErr_Format(PyExc_OverflowError, "at most %d slots", WIRE_MAX_SLOTS);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name;
        int kind;
        if (!PyArg_ParseTuple(PyTuple_GetItem(spec, i), "Si", &name, &kind))
            return -1;
        if (kind < WIRE_INT || kind > WIRE_STR) {
            PyErr_Format(PyExc_OverflowError, "unknown slot kind %d", kind);
            return -1;
        }
        slots[i].name.data = (const uint8_t *)PyBytes_AsString(name);
        slots[i].name.size = (size_t)PyBytes_Size(name);
        slots[i].kind = (wire_slot_kind)kind;
    }
    return 0;
}

static PyObject *bytes_of(wire_span span)
{
    return PyBytes_FromStringAndSize((const char *)span.data, (Py_ssize_t)span.size);
}

static PyObject *value_of(const wire_value *value)
{
    switch (value->kind) {
    case WIRE_DOUBLE:
        return PyFloat_FromDouble(value->as.real);
    case WIRE_UINT64:
        return PyLong_FromUnsignedLongLong(value->as.bits);
    case WIRE_INT64:
        return PyLong_FromLongLong((int64_t)value->as.bits);
    default:
        return bytes_of(value->as.bytes);
    }
}

static PyObject *stats_of(const wire_plane *plane)
{
    PyObject *stats = PyList_New((Py_ssize_t)plane->stat_count);
    for (size_t i = 0; stats != NULL && i < plane->stat_count; i++) {
        const wire_stat *stat = &plane->stats[i];
        /* "N" takes the references over, and gives NULL when one of them is NULL. */
        PyObject *pair = Py_BuildValue("(NN)", bytes_of(stat->name), value_of(&stat->value));
        if (pair == NULL || PyList_SetItem(stats, (Py_ssize_t)i, pair) < 0)
            Py_CLEAR(stats);
    }
    return stats;
}

static PyObject *names_of(const wire_plane *plane, int display)
{
    PyObject *names = PyList_New((Py_ssize_t)plane->line_count);
    for (size_t i = 0; names != NULL && i < plane->line_count; i++) {
        const wire_line_names *line = &plane->line_names[i];
        PyObject *name = bytes_of(display ? line->display_name : line->name);
        if (name == NULL || PyList_SetItem(names, (Py_ssize_t)i, name) < 0)
            Py_CLEAR(names);
    }
    return names;
}

static PyObject *slots_of(const columns *all, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *column = all->columns[WIRE_FIRST_SLOT + i];
        column = column != NULL ? column : Py_None;
        Py_INCREF(column);
        if (PyList_SetItem(list, (Py_ssize_t)i, column) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *result_of(const wire_plane *plane, const columns *all, size_t slot_count)
{
    PyObject *const *c = all->columns;
    PyObject *lines = Py_BuildValue("(OOOONN)", c[WIRE_LINE_ID], c[WIRE_LINE_TIMESTAMP_NS], c[WIRE_LINE_DURATION_PS],
                                    c[WIRE_LINE_EVENTS], names_of(plane, 0), names_of(plane, 1));
    PyObject *events = Py_BuildValue("(OOOOO)", c[WIRE_EVENT_LINE], c[WIRE_EVENT_NAME], c[WIRE_EVENT_OFFSET],
                                     c[WIRE_EVENT_DURATION], c[WIRE_EVENT_HAS_START]);
    return Py_BuildValue("(NLNNNNOO)", bytes_of(plane->name), (long long)plane->id, stats_of(plane), lines, events,
                         slots_of(all, slot_count), c[WIRE_STRING_BLOB], c[WIRE_STRING_OFFSETS]);
}

static void raise(wire_status status, const wire_plane *plane)
{
    PyObject *arguments;
    switch (status) {
    case WIRE_MALFORMED:
        arguments = Py_BuildValue("(sK)", "malformed", (unsigned long long)plane->error_offset);
        break;
    case WIRE_TOO_MANY_EVENTS:
        arguments = Py_BuildValue("(sK)", "too_many_events", (unsigned long long)plane->excess);
        break;
    default:
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        return;
    }
    if (arguments != NULL) {
        PyErr_SetObject(PyExc_ValueError, arguments);
        Py_DECREF(arguments);
    }
}

static PyObject *decode_plane(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *data, *spec, *result = NULL;
    long long max_bytes;
    wire_slot slots[WIRE_MAX_SLOTS];
    columns all = {{NULL}, NULL};
    wire_plane plane;
    wire_options options = {.slots = slots, .allocate = allocate_column, .context = &all};
    if (!PyArg_ParseTuple(arguments, "SO!L:decode_plane", &data, &PyTuple_Type, &spec, &max_bytes))
        return NULL;
    if (read_slots(spec, slots) < 0 || draw_seed(options.seed) < 0)
        return NULL;
    options.slot_count = (size_t)PyTuple_Size(spec);
    options.max_bytes = max_bytes < 0 ? 0 : (unsigned long long)max_bytes > SIZE_MAX ? SIZE_MAX : (size_t)max_bytes;
    const uint8_t *bytes = (const uint8_t *)PyBytes_AsString(data);
    size_t size = (size_t)PyBytes_Size(data);

    all.thread = PyEval_SaveThread();
    wire_status status = wire_decode_plane(bytes, size, &options, &plane);
    PyEval_RestoreThread(all.thread);

    if (status == WIRE_OK)
        result = result_of(&plane, &all, options.slot_count);
    else
        raise(status, &plane);
    wire_release(&plane);
    for (size_t i = 0; i < WIRE_COLUMNS; i++)
        Py_XDECREF(all.columns[i]);
    return result;
}

static PyMethodDef methods[] = {
    {"decode_plane", decode_plane, METH_VARARGS,
     "decode_plane(data, slots, max_bytes): one XPlane message as columns; see tb_gpu_doctor.traces.wire."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_wire",
    .m_doc = "The compiled XPlane decoder.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__wire(void)
{
    return PyModuleDef_Init(&definition);
}
