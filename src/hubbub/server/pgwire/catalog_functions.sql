-- Functions of PostgreSQL that drivers call on the catalogs, and the views that follow from the catalogs' tables.
-- pgc stands for pg_catalog, pgi for information_schema; queries are rewritten to hub_ names by catalog_sql.py.
-- What a dataset does not have (defaults, indexes, triggers, sizes, privileges to write) is NULL, 0 or false.

-- Names and OIDs; of a qualified or quoted name the last part counts.
CREATE MACRO hub_last(x) AS replace(split_part(CAST(x AS VARCHAR), '.', -1), '"', '');
CREATE MACRO hub_long_name(name) AS CASE name
    WHEN 'bool' THEN 'boolean'
    WHEN 'int2' THEN 'smallint'
    WHEN 'int4' THEN 'integer'
    WHEN 'int8' THEN 'bigint'
    WHEN 'float4' THEN 'real'
    WHEN 'float8' THEN 'double precision'
    WHEN 'varchar' THEN 'character varying'
    WHEN 'bpchar' THEN 'character'
    WHEN 'timestamp' THEN 'timestamp without time zone'
    WHEN 'timestamptz' THEN 'timestamp with time zone'
    WHEN 'time' THEN 'time without time zone'
    WHEN 'timetz' THEN 'time with time zone'
    WHEN 'varbit' THEN 'bit varying'
    WHEN 'char' THEN '"char"'
    ELSE name END;
CREATE MACRO hub_regclass(x) AS COALESCE(
    TRY_CAST(CAST(x AS VARCHAR) AS UINTEGER),
    (SELECT min(c.oid) FROM pgc.pg_class c WHERE c.relname = hub_last(x)));
CREATE MACRO hub_regclass_name(x) AS (SELECT min(c.relname) FROM pgc.pg_class c WHERE c.oid = hub_regclass(x));
CREATE MACRO hub_regnamespace(x) AS COALESCE(
    TRY_CAST(CAST(x AS VARCHAR) AS UINTEGER),
    (SELECT min(n.oid) FROM pgc.pg_namespace n WHERE n.nspname = hub_last(x)));
CREATE MACRO hub_regnamespace_name(x) AS (
    SELECT min(n.nspname) FROM pgc.pg_namespace n WHERE n.oid = hub_regnamespace(x));
CREATE VIEW pgc.hub_type_names AS SELECT t.oid, CASE
    WHEN t.typcategory = 'A' AND e.oid IS NOT NULL AND t.typname NOT IN ('int2vector', 'oidvector')
    THEN hub_long_name(e.typname) || '[]' ELSE hub_long_name(t.typname) END AS name
    FROM pgc.pg_type t LEFT JOIN pgc.pg_type e ON e.oid = t.typelem;
CREATE MACRO hub_format_type(x, m) AS (SELECT min(h.name) FROM pgc.hub_type_names h WHERE h.oid = x);
CREATE MACRO hub_regtype(x) AS COALESCE(
    TRY_CAST(CAST(x AS VARCHAR) AS UINTEGER),
    (SELECT min(t.oid) FROM pgc.pg_type t WHERE t.typname = hub_last(x)),
    (SELECT min(h.oid) FROM pgc.hub_type_names h WHERE h.name = lower(CAST(x AS VARCHAR))));
CREATE MACRO hub_regtype_name(x) AS hub_format_type(hub_regtype(x), NULL);
CREATE MACRO hub_to_regtype(x) AS hub_regtype(x);
CREATE MACRO hub_to_regclass(x) AS hub_regclass(x);
CREATE MACRO hub_to_regnamespace(x) AS hub_regnamespace(x);
CREATE MACRO hub_quote_ident(x) AS CASE WHEN regexp_full_match(x, '[a-z_][a-z0-9_]*') THEN x
    ELSE '"' || replace(x, '"', '""') || '"' END;
CREATE MACRO hub_quote_literal(x) AS '''' || replace(CAST(x AS VARCHAR), '''', '''''') || '''';

-- What is on the search path.
CREATE MACRO hub_pg_table_is_visible(x) AS x IN (
    SELECT c.oid FROM pgc.pg_class c WHERE c.relnamespace IN (11, 2200));
CREATE MACRO hub_pg_type_is_visible(x) AS x IN (
    SELECT c.oid FROM pgc.pg_type c WHERE c.typnamespace IN (11, 2200));
CREATE MACRO hub_pg_function_is_visible(x) AS x IN (
    SELECT c.oid FROM pgc.pg_proc c WHERE c.pronamespace IN (11, 2200));
CREATE MACRO hub_current_schemas(x) AS CASE WHEN x THEN ['pg_catalog', 'public'] ELSE ['public'] END;
CREATE MACRO hub_pg_operator_is_visible(x) AS true;
CREATE MACRO hub_pg_opclass_is_visible(x) AS true;
CREATE MACRO hub_pg_collation_is_visible(x) AS true;
CREATE MACRO hub_pg_ts_config_is_visible(x) AS true;
CREATE MACRO hub_pg_statistics_obj_is_visible(x) AS true;
CREATE MACRO hub_pg_conversion_is_visible(x) AS true;

-- Comments: what is declared of tables and columns.
CREATE MACRO hub_obj_description(x) AS (
    SELECT min(d.description) FROM pgc.pg_description d WHERE d.objoid = x AND d.objsubid = 0),
    (x, c) AS (SELECT min(d.description) FROM pgc.pg_description d
    WHERE d.objoid = x AND d.objsubid = 0 AND d.classoid = hub_regclass(c));
CREATE MACRO hub_col_description(x, n) AS (SELECT min(d.description) FROM pgc.pg_description d
    WHERE d.objoid = x AND d.objsubid = n AND d.classoid = 1259);
CREATE MACRO hub_shobj_description(x, c) AS CAST(NULL AS VARCHAR);

-- Functions of PostgreSQL itself.
CREATE MACRO hub_pg_get_function_result(x) AS (
    SELECT min(h.name) FROM pgc.pg_proc p JOIN pgc.hub_type_names h ON h.oid = p.prorettype WHERE p.oid = x);
CREATE MACRO hub_pg_get_function_arguments(x) AS (
    SELECT min(array_to_string(p.proargtypes, ', ')) FROM pgc.pg_proc p WHERE p.oid = x);
CREATE MACRO hub_pg_get_function_identity_arguments(x) AS hub_pg_get_function_arguments(x);

-- Texts of what no dataset has.
CREATE MACRO hub_pg_get_expr(a, b) AS CAST(NULL AS VARCHAR), (a, b, c) AS CAST(NULL AS VARCHAR);
CREATE MACRO hub_pg_get_indexdef(a) AS CAST(NULL AS VARCHAR), (a, b) AS CAST(NULL AS VARCHAR),
    (a, b, c) AS CAST(NULL AS VARCHAR);
CREATE MACRO hub_pg_get_constraintdef(a) AS CAST(NULL AS VARCHAR), (a, b) AS CAST(NULL AS VARCHAR),
    (a, b, c) AS CAST(NULL AS VARCHAR);
CREATE MACRO hub_pg_get_viewdef(a) AS CAST(NULL AS VARCHAR), (a, b) AS CAST(NULL AS VARCHAR),
    (a, b, c) AS CAST(NULL AS VARCHAR);
CREATE MACRO hub_pg_get_triggerdef(a) AS CAST(NULL AS VARCHAR), (a, b) AS CAST(NULL AS VARCHAR),
    (a, b, c) AS CAST(NULL AS VARCHAR);
CREATE MACRO hub_pg_get_ruledef(a) AS CAST(NULL AS VARCHAR), (a, b) AS CAST(NULL AS VARCHAR),
    (a, b, c) AS CAST(NULL AS VARCHAR);
CREATE MACRO hub_pg_get_serial_sequence(a) AS CAST(NULL AS VARCHAR), (a, b) AS CAST(NULL AS VARCHAR),
    (a, b, c) AS CAST(NULL AS VARCHAR);
CREATE MACRO hub_pg_get_partkeydef(a) AS CAST(NULL AS VARCHAR), (a, b) AS CAST(NULL AS VARCHAR),
    (a, b, c) AS CAST(NULL AS VARCHAR);
CREATE MACRO hub_pg_get_partition_constraintdef(a) AS CAST(NULL AS VARCHAR), (a, b) AS CAST(NULL AS VARCHAR),
    (a, b, c) AS CAST(NULL AS VARCHAR);
CREATE MACRO hub_pg_get_statisticsobjdef_columns(a) AS CAST(NULL AS VARCHAR), (a, b) AS CAST(NULL AS VARCHAR),
    (a, b, c) AS CAST(NULL AS VARCHAR);
CREATE MACRO hub_pg_tablespace_location(a) AS CAST(NULL AS VARCHAR), (a, b) AS CAST(NULL AS VARCHAR),
    (a, b, c) AS CAST(NULL AS VARCHAR);
CREATE MACRO hub_pg_get_function_sqlbody(a) AS CAST(NULL AS VARCHAR), (a, b) AS CAST(NULL AS VARCHAR),
    (a, b, c) AS CAST(NULL AS VARCHAR);
CREATE MACRO hub_pg_get_functiondef(a) AS CAST(NULL AS VARCHAR), (a, b) AS CAST(NULL AS VARCHAR),
    (a, b, c) AS CAST(NULL AS VARCHAR);

-- Privileges: to look, and nothing else.
CREATE MACRO hub_may(x) AS upper(CAST(x AS VARCHAR)) IN ('SELECT', 'USAGE', 'CONNECT', 'EXECUTE', 'MEMBER');
CREATE MACRO hub_has_table_privilege(a, b) AS hub_may(b), (a, b, c) AS hub_may(c);
CREATE MACRO hub_has_schema_privilege(a, b) AS hub_may(b), (a, b, c) AS hub_may(c);
CREATE MACRO hub_has_database_privilege(a, b) AS hub_may(b), (a, b, c) AS hub_may(c);
CREATE MACRO hub_has_type_privilege(a, b) AS hub_may(b), (a, b, c) AS hub_may(c);
CREATE MACRO hub_has_language_privilege(a, b) AS hub_may(b), (a, b, c) AS hub_may(c);
CREATE MACRO hub_has_function_privilege(a, b) AS hub_may(b), (a, b, c) AS hub_may(c);
CREATE MACRO hub_has_sequence_privilege(a, b) AS hub_may(b), (a, b, c) AS hub_may(c);
CREATE MACRO hub_has_server_privilege(a, b) AS hub_may(b), (a, b, c) AS hub_may(c);
CREATE MACRO hub_has_tablespace_privilege(a, b) AS hub_may(b), (a, b, c) AS hub_may(c);
CREATE MACRO hub_has_any_column_privilege(a, b) AS hub_may(b), (a, b, c) AS hub_may(c);
CREATE MACRO hub_pg_has_role(a, b) AS hub_may(b), (a, b, c) AS hub_may(c);
CREATE MACRO hub_has_column_privilege(a, b, c) AS hub_may(c), (a, b, c, d) AS hub_may(d);
CREATE MACRO hub_pg_get_userbyid(x) AS 'hubbub';
CREATE MACRO hub_aclexplode(x) AS {'grantor': CAST(NULL AS UINTEGER), 'grantee': CAST(NULL AS UINTEGER),
    'privilege_type': CAST(NULL AS VARCHAR), 'is_grantable': CAST(NULL AS BOOLEAN)};
CREATE MACRO hub_acldefault(x, y) AS CAST(NULL AS VARCHAR);

-- Sizes: how many rows there are is not said.
CREATE MACRO hub_pg_relation_size(x) AS CAST(0 AS BIGINT), (x, y) AS CAST(0 AS BIGINT);
CREATE MACRO hub_pg_total_relation_size(x) AS CAST(0 AS BIGINT), (x, y) AS CAST(0 AS BIGINT);
CREATE MACRO hub_pg_table_size(x) AS CAST(0 AS BIGINT), (x, y) AS CAST(0 AS BIGINT);
CREATE MACRO hub_pg_indexes_size(x) AS CAST(0 AS BIGINT), (x, y) AS CAST(0 AS BIGINT);
CREATE MACRO hub_pg_database_size(x) AS CAST(0 AS BIGINT), (x, y) AS CAST(0 AS BIGINT);
CREATE MACRO hub_pg_tablespace_size(x) AS CAST(0 AS BIGINT), (x, y) AS CAST(0 AS BIGINT);
CREATE MACRO hub_pg_size_pretty(x) AS CAST(x AS VARCHAR) || ' bytes';

-- The server.
CREATE MACRO hub_pg_encoding_to_char(x) AS 'UTF8';
CREATE MACRO hub_pg_char_to_encoding(x) AS 6;
CREATE MACRO hub_pg_client_encoding() AS 'UTF8';
CREATE MACRO hub_pg_is_in_recovery() AS false;
CREATE MACRO hub_pg_is_other_temp_schema(x) AS false;
CREATE MACRO hub_pg_my_temp_schema() AS CAST(0 AS UINTEGER);
CREATE MACRO hub_pg_relation_is_publishable(x) AS false;
CREATE MACRO hub_pg_relation_is_updatable(x, y) AS 0;
CREATE MACRO hub_pg_advisory_unlock_all() AS CAST(NULL AS VARCHAR);
CREATE MACRO hub_pg_postmaster_start_time() AS CAST(NULL AS TIMESTAMP WITH TIME ZONE);
CREATE MACRO hub_pg_conf_load_time() AS CAST(NULL AS TIMESTAMP WITH TIME ZONE);
CREATE MACRO hub_txid_current() AS CAST(1 AS BIGINT);
CREATE MACRO hub_inet_server_addr() AS CAST(NULL AS VARCHAR);
CREATE MACRO hub_inet_client_addr() AS CAST(NULL AS VARCHAR);
CREATE MACRO hub_inet_server_port() AS CAST(NULL AS INTEGER);
CREATE MACRO hub_age(x) AS 0;

-- Arrays and records.
CREATE MACRO hub_array_upper(x, n) AS NULLIF(len(x), 0);
CREATE MACRO hub_array_lower(x, n) AS CASE WHEN len(x) > 0 THEN 1 END;
CREATE MACRO hub_array_to_string(x, s) AS array_to_string(x, s), (x, s, n) AS array_to_string(x, s);
CREATE MACRO hub__pg_expandarray(x) AS {'x': CAST(NULL AS SMALLINT), 'n': CAST(NULL AS INTEGER)};
CREATE MACRO hub_pg_options_to_table(x) AS {'option_name': CAST(NULL AS VARCHAR),
    'option_value': CAST(NULL AS VARCHAR)};

-- Views.
CREATE VIEW pgc.pg_tables AS SELECT n.nspname AS schemaname, c.relname AS tablename, 'hubbub' AS tableowner,
    CAST(NULL AS VARCHAR) AS tablespace, false AS hasindexes, false AS hasrules, false AS hastriggers,
    false AS rowsecurity
    FROM pgc.pg_class c JOIN pgc.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p');
CREATE VIEW pgc.pg_views AS SELECT n.nspname AS schemaname, c.relname AS viewname, 'hubbub' AS viewowner,
    CAST(NULL AS VARCHAR) AS definition
    FROM pgc.pg_class c JOIN pgc.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'v';
CREATE VIEW pgi.schemata AS SELECT d.name AS catalog_name, n.nspname AS schema_name, 'hubbub' AS schema_owner,
    CAST(NULL AS VARCHAR) AS default_character_set_catalog, CAST(NULL AS VARCHAR) AS default_character_set_schema,
    CAST(NULL AS VARCHAR) AS default_character_set_name, CAST(NULL AS VARCHAR) AS sql_path
    FROM pgc.pg_namespace n, pgc.hub_dataset d;
CREATE VIEW pgi.tables AS SELECT d.name AS table_catalog, n.nspname AS table_schema, c.relname AS table_name,
    CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'BASE TABLE' END AS table_type,
    CAST(NULL AS VARCHAR) AS self_referencing_column_name, CAST(NULL AS VARCHAR) AS reference_generation,
    CAST(NULL AS VARCHAR) AS user_defined_type_catalog, CAST(NULL AS VARCHAR) AS user_defined_type_schema,
    CAST(NULL AS VARCHAR) AS user_defined_type_name, 'NO' AS is_insertable_into, 'NO' AS is_typed,
    CAST(NULL AS VARCHAR) AS commit_action
    FROM pgc.pg_class c JOIN pgc.pg_namespace n ON n.oid = c.relnamespace, pgc.hub_dataset d
    WHERE c.relkind IN ('r', 'v');
CREATE VIEW pgi.columns AS SELECT d.name AS table_catalog, n.nspname AS table_schema, c.relname AS table_name,
    a.attname AS column_name, CAST(a.attnum AS INTEGER) AS ordinal_position, CAST(NULL AS VARCHAR) AS column_default,
    CASE WHEN a.attnotnull THEN 'NO' ELSE 'YES' END AS is_nullable,
    CASE WHEN t.typcategory = 'A' THEN 'ARRAY' WHEN t.typnamespace = 11 THEN hub_long_name(t.typname)
        ELSE 'USER-DEFINED' END AS data_type,
    CAST(NULL AS INTEGER) AS character_maximum_length,
    CASE WHEN a.atttypid = 25 THEN 1073741824 END AS character_octet_length,
    CASE a.atttypid WHEN 701 THEN 53 WHEN 700 THEN 24 WHEN 23 THEN 32 WHEN 20 THEN 64 WHEN 21 THEN 16 END
        AS numeric_precision,
    CASE WHEN a.atttypid IN (20, 21, 23, 700, 701) THEN 2 END AS numeric_precision_radix,
    CASE WHEN a.atttypid IN (20, 21, 23) THEN 0 END AS numeric_scale,
    CASE a.atttypid WHEN 1082 THEN 0 WHEN 1114 THEN 6 WHEN 1184 THEN 6 END AS datetime_precision,
    CAST(NULL AS VARCHAR) AS interval_type, CAST(NULL AS INTEGER) AS interval_precision,
    CAST(NULL AS VARCHAR) AS character_set_catalog, CAST(NULL AS VARCHAR) AS character_set_schema,
    CAST(NULL AS VARCHAR) AS character_set_name, CAST(NULL AS VARCHAR) AS collation_catalog,
    CAST(NULL AS VARCHAR) AS collation_schema, CAST(NULL AS VARCHAR) AS collation_name,
    CAST(NULL AS VARCHAR) AS domain_catalog, CAST(NULL AS VARCHAR) AS domain_schema,
    CAST(NULL AS VARCHAR) AS domain_name,
    d.name AS udt_catalog, 'pg_catalog' AS udt_schema, t.typname AS udt_name,
    CAST(NULL AS VARCHAR) AS scope_catalog, CAST(NULL AS VARCHAR) AS scope_schema,
    CAST(NULL AS VARCHAR) AS scope_name,
    CAST(NULL AS INTEGER) AS maximum_cardinality, CAST(a.attnum AS VARCHAR) AS dtd_identifier,
    'NO' AS is_self_referencing, 'NO' AS is_identity,
    CAST(NULL AS VARCHAR) AS identity_generation, CAST(NULL AS VARCHAR) AS identity_start,
    CAST(NULL AS VARCHAR) AS identity_increment, CAST(NULL AS VARCHAR) AS identity_maximum,
    CAST(NULL AS VARCHAR) AS identity_minimum,
    'NO' AS identity_cycle, 'NEVER' AS is_generated, CAST(NULL AS VARCHAR) AS generation_expression,
    'NO' AS is_updatable
    FROM pgc.pg_attribute a JOIN pgc.pg_class c ON c.oid = a.attrelid
    JOIN pgc.pg_namespace n ON n.oid = c.relnamespace JOIN pgc.pg_type t ON t.oid = a.atttypid, pgc.hub_dataset d
    WHERE a.attnum > 0;
